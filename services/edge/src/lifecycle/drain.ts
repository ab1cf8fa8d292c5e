/** A connection that can be told to go elsewhere. */
export interface Leaving {
  /** Whether something that its client asked for has no answer yet. */
  readonly isBusy: boolean;
  /** Whether its client can leave by itself when its time has come. */
  readonly canLeave: boolean;
  goaway(reconnectAfterMs: number, reason: string): void;
  close(code: number, reason: string): void;
}

export interface DrainOptions {
  /** How long new connections are still taken. */
  readonly delayMs: number;
  /** Over which clients spread their reconnects. */
  readonly spreadMs: number;
  readonly connections: () => readonly Leaving[];
  /** How many of them are open. */
  readonly open: () => number;
  /** How many handshakes and requests have come so far. */
  readonly arrivals: () => number;
  /** HTTP requests without an answer. */
  readonly requests: () => number;
  /** Called when the listener is to be closed. */
  readonly stopListening: () => void;
  /** A number in [0, 1). */
  readonly random: () => number;
  /** ms, monotonic. */
  readonly now: () => number;
  readonly wait: (ms: number) => Promise<void>;
  /** Resolves when this turn of the loop has taken what the kernel had for it. */
  readonly turn: () => Promise<void>;
}

const TICK_MS = 20;
/** Told or closed in a tick at least: `end` to 3,000 at once held up everybody else for 100 ms. */
const BATCH = 100;
/** A node with few clients need not take all of the spread: this much for each is gentle enough. */
const SPREAD_PER_CLIENT_MS = 10;
/** What a client has to leave by itself when its time has come, where it can. */
const LEAVE_MS = 1_000;
/** What a client that waits for an answer has besides. */
const ANSWER_MS = 1_000;
/** The longest that answers are waited for: downloads, mostly. */
const REQUESTS_MS = 20_000;
/** The longest that a moment without arrivals is looked for. */
const QUIET_MS = 1_000;

/**
 * Lets go of all clients: still accept for a while → stop → tell each when to come back, evenly over the
 * spread → close those that are still there a second after their time (streams, whose clients only listen, at
 * it) → let HTTP requests end. Commands
 * are taken until a connection is closed. What comes meanwhile finds an open door elsewhere.
 */
export async function drain(options: DrainOptions): Promise<void> {
  await options.wait(options.delayMs);
  await quiet(options);
  options.stopListening();
  await sendAway(options);
  await until(options, REQUESTS_MS, () => options.requests() === 0);
}

/**
 * What has connected and was not accepted yet when the listener closes is reset by the kernel. So it is
 * closed in a moment in which nobody comes, right behind a turn that took what was there.
 */
async function quiet(options: DrainOptions): Promise<void> {
  let seen = options.arrivals();
  await until(options, QUIET_MS, () => {
    const before = seen;
    seen = options.arrivals();
    return seen === before;
  });
  await options.turn();
}

async function sendAway(options: DrainOptions): Promise<void> {
  const { now, random, wait } = options;
  const begun = now();
  const clients = options.connections();
  const spread = Math.min(options.spreadMs, clients.length * SPREAD_PER_CLIENT_MS);
  // One time for each, in order, and by chance within its part: even, and no two nodes in step.
  const dues = clients.map((_, i) => begun + ((i + random()) / clients.length) * spread);
  const due = (i: number): number => dues[i] ?? begun;

  let told = 0;
  let come = 0;
  let waiting: { readonly client: Leaving; readonly since: number }[] = [];
  while (come < clients.length || waiting.length > 0) {
    const at = now();
    const enough = told + BATCH;
    for (; told < clients.length && (told < enough || due(told) <= at); told += 1) {
      clients[told]?.goaway(Math.max(0, Math.round(due(told) - at)), "drain");
    }
    for (; come < told && due(come) <= at; come += 1) {
      const client = clients[come];
      if (client) waiting.push({ client, since: due(come) });
    }
    waiting = waiting.filter(({ client, since }) => {
      const leave = client.canLeave ? LEAVE_MS : 0;
      if (at < since + leave + (client.isBusy ? ANSWER_MS : 0)) return true;
      close(client);
      return false;
    });
    if (options.open() === 0) return;
    await wait(TICK_MS);
  }
  // Those that were being opened meanwhile are here by now.
  for (const batch of batches(options.connections())) {
    for (const client of batch) {
      client.goaway(0, "drain");
      close(client);
    }
    await wait(TICK_MS);
  }
}

function close(client: Leaving): void {
  client.close(1012, "this node is stopping");
}

/** Looks at each tick, for so long. */
async function until(
  { now, wait }: DrainOptions,
  limitMs: number,
  isSo: () => boolean,
): Promise<void> {
  const giveUpAt = now() + limitMs;
  do await wait(TICK_MS);
  while (!isSo() && now() < giveUpAt);
}

function* batches<T>(items: readonly T[]): IterableIterator<readonly T[]> {
  for (let i = 0; i < items.length; i += BATCH) yield items.slice(i, i + BATCH);
}
