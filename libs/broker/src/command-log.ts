import { createHash } from "node:crypto";
import type { Command } from "@throughline/protocol";
import type { Broker } from "./broker.ts";
import { noticeCancel } from "./cancel-notices.ts";
import {
  type CommandSink,
  CommandTail,
  readCommands,
  type StoredCommand,
  storedCommand,
} from "./command-tail.ts";
import { BrokerUnavailable } from "./errors.ts";
import { H, N } from "./headers.ts";
import type { RunRef } from "./ids.ts";
import { leaderRead } from "./leader-read.ts";
import { isFatalRefusal, publishAcked } from "./publish.ts";
import { commandSubject, streamName } from "./subjects.ts";

export interface CommandRequest {
  readonly ref: RunRef;
  readonly command: Command;
  readonly user: string;
  readonly hash: string;
  /** When this edge took it, ms since the epoch: what came before an expiry is judged by it. */
  readonly at?: number;
}

/** A command by its idempotency key; the run's session and tenant are part of the scope. */
export interface CommandKey {
  readonly ref: RunRef;
  readonly user: string;
  readonly id: string;
}

export type CommandOutcome =
  | { readonly outcome: "stored"; readonly streamSeq: number }
  | { readonly outcome: "duplicate"; readonly streamSeq: number }
  /** The id was used with another body. */
  | { readonly outcome: "conflict" };

const PUBLISH_MS = 3_000;
/** How much `find` reads of a run's commands: a client may send its run as many as it likes. */
const FIND_BYTES = 16 * 1024 * 1024;

/** The command logs of all runs: idempotent publish for the edge, the tail for the worker. */
export class CommandLog {
  readonly #broker: Broker;

  constructor(broker: Broker) {
    this.#broker = broker;
  }

  /**
   * Stores a command once, whatever node it comes through. The id's scope is (tenant, user, session).
   * Rejects with BrokerUnavailable when the outcome could not be learnt; the same call may be made again.
   */
  async publish(request: CommandRequest): Promise<CommandOutcome> {
    const { ref, command, user, hash } = request;
    this.#broker.assertUp();
    const shard = this.#broker.shardOf(ref.session);
    const scope = JSON.stringify([ref.tenant, user, ref.session, command.id]);
    const outcome = await publishAcked(
      this.#broker.nc,
      commandSubject(ref, shard),
      Buffer.from(JSON.stringify(command)),
      {
        [N.msgId]: createHash("sha256").update(scope).digest("base64url").slice(0, 22),
        [H.hash]: hash,
        [H.user]: encodeURIComponent(user),
        [H.at]: request.at,
      },
      PUBLISH_MS,
    );
    if (outcome.kind === "stored") {
      // Also for a duplicate: whoever stored it may have died before it could say so.
      if (command.type === "run.cancel") noticeCancel(this.#broker.nc, ref);
      if (!outcome.duplicate) return { outcome: "stored", streamSeq: outcome.streamSeq };
      return this.#compare(shard, outcome.streamSeq, hash);
    }
    if (outcome.kind === "refused" && isFatalRefusal(outcome.code)) {
      throw new RangeError(`NATS does not take this command: ${outcome.description}`);
    }
    throw new BrokerUnavailable(`command ${command.id} was not confirmed`, { cause: outcome });
  }

  async #compare(shard: number, streamSeq: number, hash: string): Promise<CommandOutcome> {
    const stream = streamName.commands(shard);
    const { messages } = await this.#broker.reader.read(stream, { seq: streamSeq });
    const first = messages[0] ?? (await leaderRead(this.#broker.nc, stream, { seq: streamSeq }));
    if (first && first.headers.get(H.hash) !== hash) return { outcome: "conflict" };
    return { outcome: "duplicate", streamSeq };
  }

  /**
   * The command as it was stored, or undefined if it is not among the run's. The leader's last one is
   * looked at first: it is mostly the one that is sent again. Of the others the oldest 16 MiB are read, a
   * page at a time. `before`: only what lies before that stream sequence. Rejects with BrokerUnavailable.
   */
  async find(
    { ref, user, id }: CommandKey,
    before: number = Number.POSITIVE_INFINITY,
  ): Promise<StoredCommand | undefined> {
    const last = await this.#last(ref);
    const isIt = (stored: StoredCommand): boolean =>
      stored.user === user && idOf(stored.command) === id && stored.streamSeq < before;
    if (last === undefined || isIt(last)) return last;
    let bytes = 0;
    for await (const stored of this.#upTo(ref, 0, last.streamSeq)) {
      if (isIt(stored)) return stored;
      bytes += stored.body.byteLength;
      if (bytes > FIND_BYTES) return undefined;
    }
    return undefined;
  }

  /** The run's commands after `after`, up to the last that the leader holds when this is asked. Throws BrokerUnavailable. */
  async *stored(ref: RunRef, after: number): AsyncGenerator<StoredCommand> {
    const last = await this.#last(ref);
    if (last && last.streamSeq > after) yield* this.#upTo(ref, after, last.streamSeq);
  }

  async #last(ref: RunRef): Promise<StoredCommand | undefined> {
    const shard = this.#broker.shardOf(ref.session);
    const query = { last_by_subj: commandSubject(ref, shard) };
    const raw = await leaderRead(this.#broker.nc, streamName.commands(shard), query);
    return raw && storedCommand(raw.subject, raw.streamSeq, raw.headers, raw.body);
  }

  async *#upTo(ref: RunRef, after: number, upTo: number): AsyncGenerator<StoredCommand> {
    let position = after;
    while (position < upTo) {
      const page = await readCommands(this.#broker, ref, position, upTo);
      for (const stored of page.messages) {
        if (stored.streamSeq > upTo) return;
        yield stored;
        position = stored.streamSeq;
      }
      if (page.end) return;
    }
  }

  tail(ref: RunRef, after: number, sink: CommandSink): CommandTail {
    return new CommandTail(this.#broker, ref, after, sink);
  }
}

function idOf(command: unknown): unknown {
  return typeof command === "object" && command !== null && "id" in command
    ? command.id
    : undefined;
}
