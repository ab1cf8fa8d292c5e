/**
 * Commands that are on their way. A command is kept, under the id it was given, until it is answered;
 * after a loss of the connection it is sent again, whatever became of the first copy. The server takes
 * an id once, so "sent twice" and "took effect once" go together.
 */
import {
  type ControlFrame,
  ERROR_CODES,
  type Command,
  type ControlFrameOf,
  isErrorCode,
  MAX_FRAME_BYTES,
} from "@throughline/protocol";
import type { Clock } from "../clock.ts";
import { type BackoffOptions, backoff } from "../connection/backoff.ts";
import { CommandRejected, OutboxFull } from "../errors.ts";

/** What the edge says of a command that it has taken. */
export type Answer = ControlFrameOf<"command.accepted"> | ControlFrameOf<"session.created">;

type Phase =
  /** Goes out when the connection is open. */
  | { readonly name: "queued" }
  | { readonly name: "sent"; readonly at: number }
  /** Refused for the moment, e.g. `unavailable`; goes out again when the timer fires. */
  | { readonly name: "pausing"; readonly cancel: () => void };

interface Entry {
  readonly id: string;
  readonly text: string;
  readonly bytes: number;
  phase: Phase;
  refusals: number;
  /** Stops listening to the caller's signal. */
  readonly forget: () => void;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

export interface OutboxOptions {
  clock: Clock;
  random: () => number;
  reconnect: BackoffOptions;
  isOpen(): boolean;
  /** Only while it is open. */
  send(text: string): void;
  /** The largest frame that the server takes, in bytes. */
  maxFrameBytes(): number;
}

/** Commands without an answer. More than this, and the user is not typing but something is looping. */
const MAX_OUTSTANDING = 1_000;
/**
 * Commands on the wire at a time. A server bounds how many it lets wait on one connection, and refuses
 * the rest for a moment; sent again one by one, they would lose their order.
 */
const MAX_ON_WIRE = 32;
/** With back-off up to the cap: about two minutes in which a server may find its feet. */
const MAX_REFUSALS = 8;

export class Outbox {
  readonly #options: OutboxOptions;
  /** In the order in which they were given. */
  readonly #entries = new Map<string, Entry>();
  #onWire = 0;
  #closed: Error | undefined;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the edge has stored the command, with its answer.
   *
   * @param signal gives up waiting. The command may have been stored all the same.
   * @throws {CommandRejected} larger than a frame may be, refused for good, or for the moment eight times in a row
   * @throws {OutboxFull} 1,000 commands are waiting for their answers
   * @throws {ClientClosed} the client was closed before the answer came
   */
  submit(command: Command, signal?: AbortSignal): Promise<Answer> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (signal?.aborted === true) return Promise.reject(reasonOf(signal));
    if (this.#entries.size >= MAX_OUTSTANDING)
      return Promise.reject(new OutboxFull(`${MAX_OUTSTANDING} commands await their answers`));
    const { id } = command;
    if (this.#entries.has(id))
      return Promise.reject(new TypeError(`a command with the id ${id} is on its way already`));
    const text = JSON.stringify(command);
    const bytes = new TextEncoder().encode(text).length;
    // A server cuts the link over a frame that is far too big, and the frame would be sent again and again.
    if (bytes > MAX_FRAME_BYTES) {
      const message = `the command has ${bytes} bytes, ${MAX_FRAME_BYTES} at most: pass large data as an artifact`;
      return Promise.reject(new CommandRejected({ id, code: "too_large", message }));
    }
    return new Promise<Answer>((resolve, reject) => {
      const abort = (): void => {
        if (signal !== undefined) this.#fail(entry, reasonOf(signal));
      };
      const entry: Entry = {
        id,
        text,
        bytes,
        phase: { name: "queued" },
        refusals: 0,
        forget: () => signal?.removeEventListener("abort", abort),
        resolve,
        reject,
      };
      this.#entries.set(id, entry);
      signal?.addEventListener("abort", abort);
      this.#pump();
    });
  }

  /** The connection is open: all that is not answered goes out, in the order in which it was given. */
  up(): void {
    this.#pump();
  }

  /** The connection is lost, and with it every answer that was on its way. */
  down(closeCode: number | undefined): void {
    if (closeCode === 1009) this.#giveUpLargest();
    for (const entry of this.#entries.values())
      if (entry.phase.name === "sent") this.#move(entry, { name: "queued" });
  }

  /** Takes a frame if it answers one of these commands. */
  answer(frame: ControlFrame): boolean {
    switch (frame.type) {
      case "command.accepted":
      case "session.created": {
        const entry = this.#entries.get(frame.id);
        if (entry === undefined) return false;
        this.#take(entry);
        entry.resolve(frame);
        this.#pump();
        return true;
      }
      case "command.rejected":
      case "error": {
        const entry = frame.id === undefined ? undefined : this.#entries.get(frame.id);
        if (entry === undefined) return false;
        this.#refused(entry, frame);
        this.#pump();
        return true;
      }
      default:
        return false;
    }
  }

  /** When the oldest unanswered command was sent. */
  oldestQuestion(): number | undefined {
    let oldest: number | undefined;
    for (const { phase } of this.#entries.values())
      if (phase.name === "sent" && (oldest === undefined || phase.at < oldest)) oldest = phase.at;
    return oldest;
  }

  close(error: Error): void {
    this.#closed = error;
    for (const entry of this.#entries.values()) this.#fail(entry, error);
  }

  /** Sends what may be sent, in order. */
  #pump(): void {
    for (const entry of this.#entries.values()) {
      if (this.#onWire >= MAX_ON_WIRE || !this.#options.isOpen()) return;
      if (entry.phase.name === "queued") this.#send(entry);
    }
  }

  #move(entry: Entry, phase: Phase): void {
    this.#onWire += Number(phase.name === "sent") - Number(entry.phase.name === "sent");
    entry.phase = phase;
  }

  #send(entry: Entry): void {
    const limit = this.#options.maxFrameBytes();
    if (entry.bytes > limit) {
      // Sent, it would close the connection, and be sent again on the next one.
      const message = `the command has ${entry.bytes} bytes; the server takes ${limit}`;
      this.#fail(entry, new CommandRejected({ id: entry.id, code: "too_large", message }));
      return;
    }
    this.#options.send(entry.text);
    this.#move(entry, { name: "sent", at: this.#options.clock.now() });
  }

  #refused(
    entry: Entry,
    frame: ControlFrameOf<"command.rejected"> | ControlFrameOf<"error">,
  ): void {
    const { code, message, retry_after_ms: retryAfter = 0 } = frame;
    const mayPass = isErrorCode(code) && ERROR_CODES[code].retry;
    entry.refusals += 1;
    if (!mayPass || entry.refusals >= MAX_REFUSALS) {
      const current = frame.type === "command.rejected" ? frame.current : undefined;
      this.#fail(entry, new CommandRejected({ id: entry.id, code, message, current }));
      return;
    }
    const { clock, random, reconnect } = this.#options;
    const delay = retryAfter + backoff("now", entry.refusals, random(), reconnect);
    const cancel = clock.after(delay, () => {
      this.#move(entry, { name: "queued" });
      this.#pump();
    });
    this.#move(entry, { name: "pausing", cancel });
  }

  /** 1009 does not say which frame was too big; it was one of these. */
  #giveUpLargest(): void {
    let largest: Entry | undefined;
    for (const entry of this.#entries.values())
      if (entry.phase.name === "sent" && entry.bytes > (largest?.bytes ?? 0)) largest = entry;
    if (largest === undefined) return;
    const message = "the server closed the connection over a frame that is too big";
    this.#fail(largest, new CommandRejected({ id: largest.id, code: "too_large", message }));
  }

  #take(entry: Entry): void {
    if (entry.phase.name === "pausing") entry.phase.cancel();
    this.#move(entry, { name: "queued" });
    this.#entries.delete(entry.id);
    entry.forget();
  }

  #fail(entry: Entry, error: Error): void {
    if (this.#entries.get(entry.id) !== entry) return;
    this.#take(entry);
    entry.reject(error);
  }
}

function reasonOf(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new Error("aborted", { cause: reason });
}
