import type { RunRef, SessionRef } from "@throughline/broker";
import { MAX_FRAME_BYTES } from "@throughline/protocol";
import type { RunSnapshot } from "../fanout/run-snapshot.ts";
import { HubBehind, type SessionView, type Standing } from "../fanout/start.ts";
import type { Log } from "../log.ts";
import { cursorOf, isOver, type RunAt, type RunStates, RunUnreadable } from "./run-states.ts";
import { type RunSource, shownRuns } from "./session-runs.ts";

/** Over it, further states are fetched by those who want them: 20 large runs are not pushed to a phone. */
const INLINE_BYTES = 4 * MAX_FRAME_BYTES;
const TRIES = 4;

/**
 * A session as of one place in its log: its unfinished runs and the newest ones, each as of that very
 * place, so that the tail simply begins there.
 *
 * Snapshots are of different ages. Were they sent as they are, the tail had to begin at the oldest and
 * leave out, run by run, what the others hold; and a client that came back with a cursor from in between
 * would meet runs in their middle. So each is brought to the place here, by the 200 events at most that
 * a snapshot is behind.
 */
export class SessionViews {
  readonly #runs: RunSource;
  readonly #states: RunStates;
  readonly #log: Pick<Log, "error">;
  /** Who comes while a view is being made has it too: after a restart many come to one session. */
  readonly #making: Map<Standing, Promise<SessionView>> = new Map();

  constructor(runs: RunSource, states: RunStates, log: Pick<Log, "error">) {
    this.#runs = runs;
    this.#states = states;
    this.#log = log;
  }

  /** Rejects with BrokerUnavailable or HubBehind. */
  of(reader: Standing): Promise<SessionView> {
    let making = this.#making.get(reader);
    if (making === undefined) {
      making = this.#make(reader).finally(() => this.#making.delete(reader));
      this.#making.set(reader, making);
    }
    return making;
  }

  async #make(reader: Standing): Promise<SessionView> {
    const { tenant, session } = reader.filter;
    const ref = { tenant, session };
    const bases = new Map<string, Base>();
    for (let tries = 0; tries < TRIES; tries += 1) {
      // The place first: a run that the list lacks then begins behind it, and the tail brings all of it.
      const place = { streamSeq: reader.published, cursor: reader.cursor };
      const runs = await this.#shown(ref);
      const ahead = await this.#snapshots(ref, runs, bases, place.streamSeq);
      if (ahead <= place.streamSeq) {
        const states = await Promise.all(
          runs.map(async (run) => {
            const at = await this.#stateAt({ ...ref, run }, bases.get(run), place.streamSeq);
            return at && { run, at };
          }),
        );
        const { streamSeq, cursor } = place;
        const snapshots = snapshotsOf(states.filter((state) => state !== undefined));
        return { position: { streamSeq, next: 0 }, reached: cursor, snapshots };
      }
      // A worker has just written one of what this node has not seen yet.
      if (!(await reader.reach(ahead))) break;
    }
    throw new HubBehind(`session ${session}: its snapshots are ahead of what this node has seen`);
  }

  /** One run that cannot be read takes no other from who comes to their session. */
  async #stateAt(
    ref: RunRef,
    base: Base | undefined,
    streamSeq: number,
  ): Promise<RunAt | undefined> {
    if (base?.isAlone) return base.at;
    try {
      return await this.#states.advanced(ref, base?.at, streamSeq);
    } catch (error) {
      if (!(error instanceof RunUnreadable)) throw error;
      this.#log.error({ err: error, run: ref.run }, "a run is left out: it cannot be read");
      return undefined;
    }
  }

  async #shown(ref: SessionRef): Promise<readonly string[]> {
    const [entries, logged] = await Promise.all([this.#runs.list(ref), this.#runs.logged(ref)]);
    return shownRuns(entries, logged);
  }

  /** Reads what is not read yet. Returns the newest place that any of these runs' snapshots is of. */
  async #snapshots(
    ref: SessionRef,
    runs: readonly string[],
    bases: Map<string, Base>,
    seen: number,
  ): Promise<number> {
    const unread = runs.filter((run) => !bases.has(run));
    await Promise.all(
      unread.map(async (run) => {
        bases.set(run, await this.#base({ ...ref, run }, seen));
      }),
    );
    const places = runs.map((run) => bases.get(run)).filter((base) => base?.isAlone === false);
    return Math.max(0, ...places.map((base) => base?.at?.streamSeq ?? 0));
  }

  /** A snapshot from ahead may be of a log that was deleted: that one is not waited for. */
  async #base(ref: RunRef, seen: number): Promise<Base> {
    const at = await this.#states.snapshot(ref);
    if (at === undefined || at.streamSeq <= seen) return { at, isAlone: false };
    const epoch = await this.#states.epochInLog(ref);
    if (epoch === undefined) return { at, isAlone: true };
    return { at: epoch === at.epoch ? at : undefined, isAlone: false };
  }
}

/** What a run's state is made from. `isAlone`: nothing else is left of the run, and nothing can follow. */
interface Base {
  readonly at: RunAt | undefined;
  readonly isAlone: boolean;
}

/** Unfinished runs first: they are what is waited for, and what must not be fetched separately. */
function snapshotsOf(states: readonly { run: string; at: RunAt }[]): RunSnapshot[] {
  const unfinished = states.filter(({ at }) => !isOver(at));
  const finished = states.filter(({ at }) => isOver(at));
  let room = INLINE_BYTES;
  return [...unfinished, ...finished].map(({ run, at }) => {
    const snapshot = { run, cursor: cursorOf(run, at), json: JSON.stringify(at.state) };
    room -= snapshot.json.length;
    return room < 0 ? { ...snapshot, json: undefined } : snapshot;
  });
}
