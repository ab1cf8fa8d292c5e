/**
 * A run's state by its stored events: what snapshots hold, and what commands and the end are judged by.
 *
 * It is read from the log, up to what the writer knows to be stored, whenever it is wanted; so an event
 * whose append may still fail is never part of it.
 */
import {
  type Broker,
  BrokerUnavailable,
  LogCorrupt,
  type LogMessage,
  type RunRef,
} from "@throughline/broker";
import {
  type DurableEvent,
  isEventType,
  reduce,
  type RunState,
  type UnknownEvent,
} from "@throughline/protocol";
import { durableEventSchema } from "@throughline/protocol/schemas";

export interface LedgerOptions {
  readonly broker: Pick<Broker, "events">;
  readonly ref: RunRef;
  readonly state: RunState;
  /** Stream sequence of the message that holds the state's last event. */
  readonly streamSeq: number;
}

const RETRY_MS = 200;

export class Ledger {
  readonly #options: LedgerOptions;
  #state: RunState;
  #streamSeq: number;
  #reading: Promise<unknown> = Promise.resolve();

  constructor(options: LedgerOptions) {
    this.#options = options;
    this.#state = options.state;
    this.#streamSeq = options.streamSeq;
  }

  get state(): RunState {
    return this.#state;
  }

  /** Of the message that holds the state's last event. */
  get streamSeq(): number {
    return this.#streamSeq;
  }

  /**
   * The state with everything stored up to `streamSeq`. Waits while NATS is away, until `signal` aborts.
   * Rejects with LogCorrupt, or the signal's reason.
   */
  catchUp(streamSeq: number, signal: AbortSignal): Promise<RunState> {
    const reading = this.#reading.then(() => this.#read(streamSeq, signal));
    this.#reading = reading.catch(() => undefined);
    return reading;
  }

  async #read(upTo: number, signal: AbortSignal): Promise<RunState> {
    while (this.#streamSeq < upTo) {
      signal.throwIfAborted();
      try {
        const filter = { kind: "run", ...this.#options.ref } as const;
        const page = await this.#options.broker.events.read(filter, this.#streamSeq, { upTo });
        for (const message of page.messages) this.#apply(message);
        if (page.end && this.#streamSeq < upTo) {
          throw new LogCorrupt(
            `${this.#options.ref.run} has nothing at ${upTo}, where we stored an event`,
          );
        }
      } catch (error) {
        if (!(error instanceof BrokerUnavailable)) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    return this.#state;
  }

  #apply(message: LogMessage): void {
    const where = `${message.run} at ${message.streamSeq}`;
    const lines = Buffer.from(message.body).toString("utf8").split("\n");
    this.#state = lines.reduce(
      (state, line) => reduce(state, parseEvent(line, where)),
      this.#state,
    );
    this.#streamSeq = message.streamSeq;
  }
}

function parseEvent(line: string, where: string): DurableEvent | UnknownEvent {
  const value: unknown = JSON.parse(line);
  const parsed = durableEventSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  if (isUnknown(value)) return value;
  throw new LogCorrupt(`a line of ${where} is no event`, { cause: parsed.error });
}

/** A type of a newer version has a place in the order, and no more. */
function isUnknown(value: unknown): value is UnknownEvent {
  if (typeof value !== "object" || value === null) return false;
  const type: unknown = Reflect.get(value, "type");
  return (
    typeof type === "string" && !isEventType(type) && typeof Reflect.get(value, "seq") === "number"
  );
}
