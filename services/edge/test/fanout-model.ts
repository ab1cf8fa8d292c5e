import { initialRunState, parseCursor } from "@throughline/protocol";
import { randomOf, seededRandom, type SeededRandom } from "@throughline/testkit";
import { expect } from "vitest";
import { Fixture, type Follower, runFilter, SESSION } from "./fanout-fixture.ts";

/** Small sizes, so that few events reach every limit. */
const SMALL = {
  ring: { bytes: 6_000, messages: 8 },
  turnBytes: 6_000,
  unpublishedBytes: 12_000,
  pageBytes: 1_500,
  feedBytes: 4_000,
  lowWater: 500,
  softLimit: 1_000,
  hardLimit: 2_000,
  lookBytes: 600,
};

interface Watched {
  readonly follower: Follower;
  readonly run: string | undefined;
  /** Events that its client had before, of earlier connections, and the states it began with. */
  readonly before: readonly { run: string; seq: number }[];
  readonly states: ReadonlyMap<string, number>;
}

export async function playGames(games: number): Promise<void> {
  const master = seededRandom();
  for (let game = 0; game < games; game += 1) {
    const random = randomOf(Math.floor(master.next() * 2 ** 32));
    try {
      await play(random, 150);
    } catch (error) {
      throw new Error(`game ${game}, of seed ${random.seed}`, { cause: error });
    }
  }
}

/**
 * Publishes, follows, stalls, drains, leaves and comes back with the last cursor, in random order.
 * Whatever happens, what a client has had in the end is exactly the log.
 */
async function play(random: SeededRandom, steps: number): Promise<void> {
  const f = new Fixture(SMALL, random.chance(0.3) ? 10_000 : 64 * 1024 * 1024);
  const watched: Watched[] = [];
  const windowed = (): { window?: number } =>
    random.chance(0.4) ? { window: random.between(1, 6) } : {};
  const isLossy = random.chance(0.5);
  const loses = isLossy ? () => random.chance(0.05) : () => false;
  f.log.skip(random.int(5));
  for (let i = 0; i < 3; i += 1) f.log.append(`r${i}`, random.between(1, 4));

  const follow = async (): Promise<void> => {
    const run = random.chance(0.5) ? `r${random.int(3)}` : undefined;
    const kernelBytes = random.chance(0.5) ? Infinity : random.int(3_000);
    // A session that is begun from its state, with what a run's snapshot and the index may know of it.
    const from = run === undefined && random.chance(0.5) ? "snapshot" : "start";
    const follower = await f.followLate(run ? runFilter(run) : SESSION, {
      kernelBytes,
      from,
      ...windowed(),
    });
    watched.push({ follower, run, before: [], states: statesOf(follower) });
  };
  const comeBack = async (): Promise<void> => {
    const old = watched.splice(random.int(watched.length), 1)[0];
    if (old === undefined) return;
    // A session's cursor says nothing of a message that was found missing later: the client
    // would see a hole in that run's seq. So only clients of runs come back amid losses.
    old.follower.leave();
    if (old.run === undefined && isLossy) return;
    const cursor = old.follower.cursor;
    const filter = old.run ? runFilter(old.run) : SESSION;
    const follower = await f.followLate(filter, {
      cursor,
      kernelBytes: random.int(4_000),
      ...windowed(),
    });
    // Before it had all states of a session it has nothing: it begins with them again.
    const { cursor: told, mode, snapshots } = old.follower.start;
    const isBegun = mode !== "snapshot" || snapshots.length === 0 || cursor !== told;
    expect(follower.start.recovered).toBe(isBegun);
    if (!isBegun) {
      watched.push({ follower, run: old.run, before: [], states: statesOf(follower) });
      return;
    }
    const before = [...old.before, ...had(old.follower)];
    watched.push({ follower, run: old.run, before, states: old.states });
  };

  for (let step = 0; step < steps; step += 1) {
    const dice = random.next();
    if (dice < 0.35) {
      const run = `r${random.int(3)}`;
      const pad = random.chance(0.1) ? random.int(3_000) : random.int(100);
      f.log.append(run, random.between(1, 5), { pad, settled: random.chance(0.2) });
      if (random.chance(0.3)) f.log.skip(random.int(3));
    } else if (dice < 0.45) f.log.pump(random.between(1, 6), loses);
    else if (dice < 0.5) f.log.repair();
    else if (dice < 0.55) f.log.delta(`r${random.int(3)}`, random.int(20), "d");
    else if (dice < 0.63) await follow();
    else if (dice < 0.7 && watched.length > 0) await comeBack();
    else if (dice < 0.75) f.net.turn();
    else if (dice < 0.8) takeIn(watched, random);
    else if (dice < 0.82) await f.settle();
    else if (dice < 0.825) f.log.replicaLag = random.int(4);
    else if (dice < 0.835) snapshot(f, random);
    else if (dice < 0.85) {
      f.advance(20_000);
      f.hubs.sweep(f.time);
    } else if (watched.length > 0) random.pick(watched).follower.socket.drain(random.int(4_000));
    for (const { follower } of watched)
      expect(follower.unacknowledged).toBeLessThanOrEqual(follower.window ?? Infinity);
  }

  // Everybody reads on, and everything that was lost on the way is found.
  for (const run of f.log.runs()) f.log.append(run, 1, { end: random.chance(0.5) });
  for (let quiet = 0; quiet < 3;) {
    f.log.pump();
    f.log.repair();
    await f.settle();
    const before = watched.reduce((sum, w) => sum + w.follower.socket.buffered(), 0);
    for (const { follower } of watched) follower.socket.drain(1_000_000);
    const freed = watched.filter(({ follower }) => takeInAll(follower));
    quiet = before === 0 && freed.length === 0 ? quiet + 1 : 0;
  }
  expect(f.net.skipped).toBe(0);
  for (const w of watched) check(f, w);
}

/** One of the clients with a window acknowledges some of what it has. */
function takeIn(watched: readonly Watched[], random: SeededRandom): void {
  const { follower } = watched.length === 0 ? {} : random.pick(watched);
  if (follower?.window === undefined || follower.events.length === 0) return;
  const { cursor } = random.pick(follower.events);
  expect(["freed", "behind"]).toContain(follower.acknowledge(cursor));
}

function takeInAll(follower: Follower): boolean {
  if (follower.window === undefined || follower.end !== undefined) return false;
  return follower.events.length > 0 && follower.acknowledge() === "freed";
}

/** A worker writes a snapshot of one of the runs, as of any of its stored events. */
function snapshot(f: Fixture, random: SeededRandom): void {
  const run = `r${random.int(3)}`;
  const own = f.log.messages.filter((m) => m.run === run);
  const { streamSeq, firstSeq, lastSeq, epoch } = random.pick(own);
  const seq = random.between(firstSeq, lastSeq);
  f.snapshots.set(run, { state: { ...initialRunState(run), seq }, seq, streamSeq, epoch });
  if (f.index.some((entry) => entry.run === run)) return;
  const entry = { tenant: "t", session: "s", run, agent: "a", status: "running" } as const;
  f.index.push({ ...entry, by: "ann", queued_at: f.index.length });
}

/** As `subscribed` has promised them: what its socket takes of them comes later. */
function statesOf({ start }: Follower): ReadonlyMap<string, number> {
  return new Map(start.snapshots.map(({ run, cursor }) => [run, parseCursor(cursor)?.seq ?? -1]));
}

function had(follower: Follower): { run: string; seq: number }[] {
  return follower.events.map((event) => ({ run: event.run_id ?? "", seq: event.seq ?? 0 }));
}

function check(f: Fixture, { follower, run, before, states }: Watched): void {
  expect(["run_ended", undefined]).toContain(follower.end);
  const all = [...before, ...had(follower)];
  for (const name of f.log.runs()) {
    if (run !== undefined && run !== name) continue;
    const stored = f.log.messages.filter((m) => m.run === name).at(-1)?.lastSeq ?? 0;
    const seqs = all.filter((event) => event.run === name).map((event) => event.seq);
    const held = states.get(name) ?? 0;
    expect(seqs).toEqual(Array.from({ length: stored - held }, (_, i) => held + i + 1));
  }
  if (run !== undefined && f.log.hasEnded(run)) expect(follower.end).toBe("run_ended");
  // A client keeps the cursor of the last frame it had: it must never go back.
  let streamSeq = 0;
  for (const event of follower.events) {
    const cursor = parseCursor(event.cursor);
    expect(cursor?.streamSeq).toBeGreaterThanOrEqual(streamSeq);
    streamSeq = cursor?.streamSeq ?? streamSeq;
  }
  if (follower.start.mode === "snapshot") expect(follower.snapshots).toEqual(states);
  const control = follower.control.filter((type) => type === "caught_up");
  expect(control).toEqual(["caught_up"]);
}
