import { isId } from "@throughline/protocol";
import type { NatsConnection } from "@nats-io/nats-core";
import type { RunRef } from "./ids.ts";
import { CANCEL_SUBJECT } from "./subjects.ts";

/** Notices that wait. One that finds no room is lost: the sweep finds its command when the job is due. */
const WAITING = 10_000;
/** Runs looked at at the same time: a user may cancel thousands of queued runs at once. */
const AT_ONCE = 16;
const QUEUE_GROUP = "sweep";

/** Tells the workers' sweeps that a cancellation was stored. At most once: a worker that has the run knows it anyway. */
export function noticeCancel(nc: NatsConnection, { tenant, session, run }: RunRef): void {
  if (!nc.isClosed()) nc.publish(CANCEL_SUBJECT, JSON.stringify({ tenant, session, run }));
}

export interface CancelNoticesOptions {
  /** How long a notice waits before its run is looked at, in ms. */
  readonly waitMs: number;
  /** Looks at the run. Must not reject. */
  readonly look: (ref: RunRef) => Promise<void>;
}

/** Notices of one process's sweep; all of an installation share them. */
export class CancelNotices {
  readonly #options: CancelNoticesOptions;
  readonly #close: () => void;
  readonly #waiting: Map<string, NodeJS.Timeout> = new Map();
  readonly #due: RunRef[] = [];
  readonly #looking: Set<Promise<void>> = new Set();
  #closed = false;

  constructor(nc: NatsConnection, options: CancelNoticesOptions) {
    this.#options = options;
    const subscription = nc.subscribe(CANCEL_SUBJECT, {
      queue: QUEUE_GROUP,
      callback: (error, message) => {
        if (error) return;
        let data: unknown;
        try {
          data = message.json();
        } catch {
          data = undefined; // not JSON: nobody's notice
        }
        const ref = refOf(data);
        if (ref) this.add(ref, options.waitMs);
      },
    });
    this.#close = () => subscription.unsubscribe();
  }

  /** Looks at the run after `waitMs`. A run that waits already waits no longer for it. */
  add(ref: RunRef, waitMs: number): void {
    const key = `${ref.tenant}.${ref.session}.${ref.run}`;
    if (this.#closed || this.#waiting.has(key)) return;
    if (this.#waiting.size + this.#due.length >= WAITING) return;
    const timer = setTimeout(() => {
      this.#waiting.delete(key);
      this.#due.push(ref);
      this.#next();
    }, waitMs);
    this.#waiting.set(key, timer);
  }

  #next(): void {
    while (!this.#closed && this.#looking.size < AT_ONCE) {
      const ref = this.#due.shift();
      if (!ref) return;
      const look = this.#options.look(ref).finally(() => {
        this.#looking.delete(look);
        this.#next();
      });
      this.#looking.add(look);
    }
  }

  /** Resolves when the runs that are being looked at have been. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#close();
    for (const timer of this.#waiting.values()) clearTimeout(timer);
    this.#waiting.clear();
    await Promise.all(this.#looking);
  }
}

/** Subjects are made of these: no notice may bring in a wildcard. */
function refOf(data: unknown): RunRef | undefined {
  if (typeof data !== "object" || data === null) return undefined;
  const id = (name: string): string => {
    const member: unknown = Reflect.get(data, name);
    return typeof member === "string" && isId(member) ? member : "";
  };
  const ref = { tenant: id("tenant"), session: id("session"), run: id("run") };
  return ref.tenant && ref.session && ref.run ? ref : undefined;
}
