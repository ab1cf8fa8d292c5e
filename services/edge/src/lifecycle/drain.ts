/** A connection that can be told to go elsewhere. */
export interface Leaving {
  goaway(reconnectAfterMs: number, reason: string): void;
  close(code: number, reason: string): void;
}

export interface DrainOptions {
  /** How long new connections are still taken. */
  readonly delayMs: number;
  /** Over which clients spread their reconnects. */
  readonly spreadMs: number;
  readonly connections: () => readonly Leaving[];
  /** Called when the listener is to be closed. */
  readonly stopListening: () => void;
  /** A number in [0, 1). */
  readonly random: () => number;
  readonly wait: (ms: number) => Promise<void>;
}

/** Closed at a time: `end` to 3,000 at once held up everybody else for 100 ms. */
const BATCH = 100;
const BATCH_PAUSE_MS = 20;
/** A connect that the kernel has accepted is still served; then the listener goes. */
const LAST_ACCEPT_MS = 20;

/**
 * Lets go of all clients: still accept for a while → stop → tell each when to come back → close
 * them in batches. Commands are taken until a connection is closed.
 */
export async function drain(options: DrainOptions): Promise<void> {
  const { wait } = options;
  await wait(options.delayMs);
  await wait(LAST_ACCEPT_MS);
  options.stopListening();
  for (const batch of batches(options.connections())) {
    for (const connection of batch) {
      connection.goaway(Math.floor(options.random() * options.spreadMs), "drain");
    }
    await wait(BATCH_PAUSE_MS);
  }
  // Those that were being opened meanwhile are here by now.
  for (const batch of batches(options.connections())) {
    for (const connection of batch) connection.close(1012, "this node is stopping");
    await wait(BATCH_PAUSE_MS);
  }
}

function* batches<T>(items: readonly T[]): IterableIterator<readonly T[]> {
  for (let i = 0; i < items.length; i += BATCH) yield items.slice(i, i + BATCH);
}
