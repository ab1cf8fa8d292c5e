import {
  type NatsConnection,
  NoRespondersError,
  RequestError,
  TimeoutError,
} from "@nats-io/nats-core";
import type { Broker } from "./broker.ts";
import { BrokerUnavailable } from "./errors.ts";
import type { RunRef } from "./ids.ts";
import { ownerSubject } from "./subjects.ts";

/** Asked of the worker that the log names as the run's last writer. */
export interface OwnerQuestion extends RunRef {
  readonly epoch: string;
  /** Which of the worker's agents: the queue that serves it answers, the others stay silent. */
  readonly agent: string;
}

export type OwnerAnswer =
  | "holds"
  /** It is alive and does not hold the run. */
  | "not"
  /** No answer in time: dead, frozen or cut off. */
  | "silent";

function text(value: object, name: string): string | undefined {
  const member: unknown = Reflect.get(value, name);
  return typeof member === "string" ? member : undefined;
}

function parseQuestion(data: unknown): OwnerQuestion | undefined {
  if (typeof data !== "object" || data === null) return undefined;
  const [tenant, session, run] = [text(data, "tenant"), text(data, "session"), text(data, "run")];
  const [epoch, agent] = [text(data, "epoch"), text(data, "agent")];
  if (!tenant || !session || !run || epoch === undefined || !agent) return undefined;
  return { tenant, session, run, epoch, agent };
}

/** Answers the owner checks of other workers. `holds` is asked for agents of `agents` only. */
export function answerOwnerChecks(
  nc: NatsConnection,
  worker: string,
  agents: ReadonlySet<string>,
  holds: (question: OwnerQuestion) => boolean,
): { close(): void } {
  const subscription = nc.subscribe(ownerSubject(worker), {
    callback: (error, message) => {
      if (error) return;
      let data: unknown;
      try {
        data = message.json();
      } catch {
        data = undefined; // not JSON: nobody's question
      }
      const question = parseQuestion(data);
      if (!question || !agents.has(question.agent)) return;
      message.respond(JSON.stringify({ holds: holds(question) }));
    },
  });
  return { close: () => subscription.unsubscribe() };
}

export interface OwnerCheckOptions {
  /** How long one answer may take, in ms (default 500). */
  readonly answerMs?: number;
  /**
   * After a reconnect of our own, how long an owner that is not there is waited for, in ms
   * (default 8,000): after an outage workers come back one by one (a hung server is noticed
   * within 5 s), and redeliveries begin with the first of them.
   */
  readonly returnMs?: number;
}

const ASK_AGAIN_MS = 50;

/**
 * A NATS outage longer than `ack_wait` redelivers live runs. Before a redelivered run is taken
 * over, the worker that the log names is asked whether it still holds it.
 */
export class OwnerCheck {
  readonly #nc: NatsConnection;
  readonly #answerMs: number;
  readonly #returnMs: number;
  readonly #unwatch: () => void;
  #upAgainAt = -Infinity;

  constructor(broker: Pick<Broker, "nc" | "onConnection">, options: OwnerCheckOptions = {}) {
    this.#nc = broker.nc;
    this.#answerMs = options.answerMs ?? 500;
    this.#returnMs = options.returnMs ?? 8_000;
    this.#unwatch = broker.onConnection((state) => {
      if (state === "up") this.#upAgainAt = performance.now();
    });
  }

  /** Rejects with BrokerUnavailable when our own connection fails: then nothing is known of the owner. */
  async ask(worker: string, question: OwnerQuestion): Promise<OwnerAnswer> {
    const body = JSON.stringify(question);
    for (;;) {
      const askedAt = performance.now();
      const answer = await this.#once(worker, body);
      if (answer !== "silent") return answer;
      if (performance.now() >= this.#upAgainAt + this.#returnMs) return "silent";
      const rest = ASK_AGAIN_MS - (performance.now() - askedAt);
      if (rest > 0) await new Promise((resolve) => setTimeout(resolve, rest));
    }
  }

  async #once(worker: string, body: string): Promise<OwnerAnswer> {
    try {
      const reply = await this.#nc.request(ownerSubject(worker), body, { timeout: this.#answerMs });
      const data: unknown = reply.json();
      const holds =
        typeof data === "object" && data !== null && Reflect.get(data, "holds") === true;
      return holds ? "holds" : "not";
    } catch (error) {
      if (isSilence(error)) return "silent";
      throw new BrokerUnavailable(`the owner check of ${worker} could not be made`, {
        cause: error,
      });
    }
  }

  close(): void {
    this.#unwatch();
  }
}

function isSilence(error: unknown): boolean {
  if (error instanceof TimeoutError || error instanceof NoRespondersError) return true;
  return (
    error instanceof RequestError && (error.isNoResponders() || error.cause instanceof TimeoutError)
  );
}
