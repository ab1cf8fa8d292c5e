import { type Edge, eventually, randomOf, seededRandom, type Service } from "@throughline/testkit";
import { afterAll, beforeAll, describe, test } from "vitest";
import { chaos } from "./devices.ts";
import { startWorld, type World } from "./world.ts";

const SOAK = Boolean(process.env["SOAK"]);
const RUNS = SOAK ? 150 : 6;
const ACTIONS = SOAK ? 60 : 25;
/** At a time. */
const LANES = 3;

describe("[INV2] [INV5] three devices of one user, over two edges, with disconnects, retries and doubles", () => {
  let world: World;
  let edges: Edge[];
  let workers: Service[];
  /** Runs that were played to their end. */
  let played = 0;
  beforeAll(async () => {
    world = await startWorld();
    [edges, workers] = await Promise.all([
      Promise.all([world.edge(), world.edge()]),
      Promise.all([world.worker(), world.worker()]),
    ]);
  });
  afterAll(() => world.dispose());

  /** Each run has a seed of its own, drawn in order: a run that fails is repeated with its number alone. */
  async function play(runs: number): Promise<void> {
    const { seed } = seededRandom();
    const waiting = Array.from({ length: runs }, (_, n) => n);
    const lane = async (): Promise<void> => {
      for (let n = waiting.shift(); n !== undefined; n = waiting.shift()) {
        const random = randomOf(seed + n);
        await chaos({ world, edges, random, actions: ACTIONS }).catch((cause: unknown) => {
          const message = cause instanceof Error ? cause.message : String(cause);
          throw new Error(`TL_SEED=${seed + n} repeats run ${n} of seed ${seed}: ${message}`, {
            cause,
          });
        });
        played += 1;
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
  }

  test(
    "whatever they send, each command is answered once and as a sequential run would answer it, and all see the same",
    { timeout: SOAK ? 900_000 : 60_000 },
    () => play(RUNS),
  );

  test.runIf(SOAK)("while workers are killed", { timeout: 900_000 }, async () => {
    let done = false;
    const killing = (async () => {
      for (let n = 0; !done; n += 1) {
        // While some lanes are in the middle of a run, since another has just ended one.
        const before = played;
        await eventually(() => done || played > before, { timeoutMs: 120_000 });
        const victim = workers[n % workers.length];
        await victim?.kill();
        await victim?.restart();
      }
    })();
    await play(40).finally(() => (done = true));
    await killing;
  });
});
