/**
 * The agent's way to the run's log. It is cut when the run is stopped, whatever the agent does then:
 * code that ignores its signal can go on computing, but it writes nothing more.
 */
import { type RunWriter, QueueFull, type StoredAt, type TextStream } from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";
import { durableEventSchema } from "@throughline/protocol/schemas";
import { AgentError, type RunStopped } from "./failure.ts";

/** An agent that awaits its events has one waiting per branch of its work; more means that it awaits none. */
const MAX_WAITING = 1_000;

export interface AgentLaneOptions {
  readonly writer: RunWriter;
  readonly session: string;
  readonly run: string;
  /** The agent emits without awaiting, faster than the log takes it. Events were lost: the run must fail. */
  readonly onOverflow: (failure: AgentError) => void;
}

export class AgentLane {
  readonly #options: AgentLaneOptions;
  #stopped: RunStopped | undefined;
  /** Appends that found the writer's queue full, in order. */
  #line: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  constructor(options: AgentLaneOptions) {
    this.#options = options;
  }

  /** Throws what stopped the run. */
  check(): void {
    if (this.#stopped) throw this.#stopped;
  }

  /**
   * Once the run is stopped: a rejection with what stopped it, a turn of the event loop later. An agent
   * that catches everything and tries again would else keep the process, and every other run, from moving.
   */
  refusal(): Promise<never> | undefined {
    const stopped = this.#stopped;
    if (stopped === undefined) return undefined;
    return new Promise((_, reject) => setImmediate(() => reject(stopped)));
  }

  /** Nothing the agent does reaches the log from now on. */
  stop(reason: RunStopped): void {
    this.#stopped ??= reason;
  }

  /**
   * Appends in the order of the calls; resolves when it is stored. While the writer's queue is full it
   * waits. Rejects with RunStopped, AgentError (`invalid_event`), or what the writer rejects with.
   */
  append(event: NewEvent): Promise<StoredAt> {
    // An agent may leave it unawaited, and an unhandled rejection would end every run of this process.
    return handled(this.#append(event));
  }

  #append(event: NewEvent): Promise<StoredAt> {
    const { writer } = this.#options;
    const refusal = this.refusal();
    if (refusal) return refusal;
    let checked: NewEvent;
    try {
      checked = checkEvent(event, this.#options);
    } catch (error) {
      return Promise.reject(error instanceof Error ? error : new Error(String(error)));
    }
    if (this.#waiting > 0) return this.#wait(checked);
    const before = writer.seq;
    const stored = writer.append(checked);
    // seq is assigned at once, so this shows now, and not a turn later, that the event was not taken.
    return writer.seq === before ? this.#wait(checked, stored) : stored;
  }

  /** `refused`: the first try, which decides whether waiting helps. */
  #wait(event: NewEvent, refused?: Promise<StoredAt>): Promise<StoredAt> {
    if (this.#waiting >= MAX_WAITING) {
      const failure = new AgentError(
        "overflow",
        "the agent emits faster than the log takes it, without awaiting: events were lost",
      );
      this.#options.onOverflow(failure);
      return Promise.reject(failure);
    }
    this.#waiting++;
    const taken = this.#line.then(() => this.#inTurn(event, refused));
    this.#line = taken.catch(() => undefined);
    return taken.then(({ stored }) => stored);
  }

  /** Resolves when the writer has taken the event; `stored` (wrapped, to be not awaited with it) when it is stored. */
  async #inTurn(
    event: NewEvent,
    refused: Promise<StoredAt> | undefined,
  ): Promise<{ readonly stored: Promise<StoredAt> }> {
    const { writer } = this.#options;
    try {
      let attempt = refused;
      for (;;) {
        if (attempt) await queueWasFull(attempt);
        this.check();
        await writer.ready();
        this.check();
        const before = writer.seq;
        attempt = writer.append(event);
        if (writer.seq !== before) return { stored: handled(attempt) };
      }
    } finally {
      this.#waiting--;
    }
  }

  /**
   * Text of a message whose `message.started` is `started`. Checkpoints go past the line of waiting
   * events, so the first text waits until the message itself has been taken.
   */
  text(messageId: string, stepId: string | undefined, started: Promise<StoredAt>): TextStream {
    const stream = this.#options.writer.text(messageId, stepId);
    let before: Promise<unknown> | undefined = this.#waiting > 0 ? started : undefined;
    // In a block: what a handler returns becomes the new promise's fate, and `started` rejects.
    started.catch(() => {
      before = started;
    });
    const ready = async (): Promise<void> => {
      await this.refusal();
      if (before === undefined) return;
      await before;
      before = undefined;
      await this.refusal();
    };
    return {
      get length() {
        return stream.length;
      },
      write: async (text) => {
        if (before || this.#stopped) await ready();
        await stream.write(text);
      },
      end: async () => {
        await ready();
        await stream.end();
      },
    };
  }
}

/** Throws what else it was refused for. */
async function queueWasFull(attempt: Promise<StoredAt>): Promise<void> {
  try {
    await attempt;
  } catch (error) {
    if (!(error instanceof QueueFull)) throw error;
  }
}

/** The same promise. Nobody need await it: its rejection is told where it matters (the run's own end). */
export function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}

/**
 * What JSON makes of the event, checked against the wire's schema. An event that a reader cannot decode
 * would make the run's log unreadable, and with it every takeover.
 */
function checkEvent(
  event: NewEvent,
  run: { readonly session: string; readonly run: string },
): NewEvent {
  let plain: unknown;
  try {
    plain = JSON.parse(
      JSON.stringify({
        ...event,
        session_id: run.session,
        run_id: run.run,
        seq: 1,
        event_id: `${run.run}.1`,
        ts: 0,
      }),
    );
  } catch (error) {
    throw new AgentError("invalid_event", `${event.type} is not JSON`, { cause: error });
  }
  const parsed = durableEventSchema.safeParse(plain);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new AgentError(
      "invalid_event",
      `${event.type}: ${issue?.path.join(".") ?? ""} ${issue?.message ?? "is invalid"}`,
      { cause: parsed.error },
    );
  }
  return parsed.data;
}
