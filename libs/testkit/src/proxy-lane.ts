/** One direction of a proxied connection: a queue with delay, rate and a stop. */
import type { Socket } from "node:net";

/** What a direction suffers. It is looked at on every step, so a change takes effect at the next `pump`. */
export interface Faults {
  latencyMs: number;
  bytesPerSecond: number;
  stalled: boolean;
}

export interface Lane {
  /** Queues bytes behind what is queued; they suffer the same delay. */
  readonly push: (chunk: Buffer) => void;
  /** Forwards what is due. To be called after a change of the faults. */
  readonly pump: () => void;
  readonly close: () => void;
}

export interface LaneOptions {
  from: Socket;
  to: Socket;
  faults: Faults;
  /** What of a chunk goes on; `undefined` is nothing. */
  filter: (chunk: Buffer) => Buffer | undefined;
  /** Told of every write. */
  forwarded: (bytes: number) => void;
}

// The sender is stopped beyond this, so that a slow lane is felt by it (as back-pressure) and not by our memory.
const HIGH_WATER_BYTES = 256 * 1024;
const DRIP_TICK_MS = 10;

/** The end of the stream has its place in the queue, behind the bytes before it. */
type Item = { due: number; chunk: Buffer | "end" };

export function openLane({ from, to, faults, filter, forwarded }: LaneOptions): Lane {
  const queue: Item[] = [];
  let held = 0;
  let timer: NodeJS.Timeout | undefined;
  let blocked = false;
  let allowance = 0;
  let refilledAt = performance.now();

  const enqueue = (chunk: Buffer | "end"): void => {
    queue.push({ due: performance.now() + faults.latencyMs, chunk });
    if (chunk !== "end") held += chunk.length;
    pump();
  };

  const pump = (): void => {
    clearTimeout(timer);
    timer = undefined;
    while (!faults.stalled && !blocked && queue.length > 0) {
      const wait = step();
      if (wait > 0) {
        timer = setTimeout(pump, wait);
        break;
      }
    }
    // A stalled lane reads nothing either: the sender's own buffers fill, as with a peer that is gone.
    if (faults.stalled || held > HIGH_WATER_BYTES) from.pause();
    else from.resume();
  };

  /** Forwards the head of the queue, or as much of it as the rate allows; returns the ms to wait before the next. */
  const step = (): number => {
    const [head] = queue;
    if (head === undefined) return 0;
    const early = head.due - performance.now();
    if (early > 0) return early;
    if (head.chunk === "end") {
      queue.shift();
      to.end();
      return 0;
    }
    const size = Math.min(head.chunk.length, refill());
    if (size === 0) return DRIP_TICK_MS;
    const part = head.chunk.subarray(0, size);
    allowance = Math.max(0, allowance - size);
    held -= size;
    if (size === head.chunk.length) queue.shift();
    else head.chunk = head.chunk.subarray(size);
    forwarded(size);
    blocked = !to.write(part);
    return 0;
  };

  const refill = (): number => {
    const now = performance.now();
    const { bytesPerSecond: rate } = faults;
    if (rate === Infinity) return Infinity;
    // A burst is at most what two ticks allow, so that idling does not save up for a flood.
    allowance = Math.min(
      allowance + (rate * (now - refilledAt)) / 1000,
      Math.max(1, (rate * 2 * DRIP_TICK_MS) / 1000),
    );
    refilledAt = now;
    return Math.floor(allowance);
  };

  from.on("data", (chunk: Buffer) => {
    const rest = filter(chunk);
    if (rest !== undefined && rest.length > 0) enqueue(rest);
  });
  from.on("end", () => enqueue("end"));
  to.on("drain", () => {
    blocked = false;
    pump();
  });
  pump();

  return {
    push: enqueue,
    pump,
    close: () => {
      clearTimeout(timer);
      queue.length = 0;
      held = 0;
    },
  };
}
