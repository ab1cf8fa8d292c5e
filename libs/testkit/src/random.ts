import { randomInt } from "node:crypto";

/** A repeatable source of chance. */
export interface SeededRandom {
  readonly seed: number;
  /** In [0, 1). */
  next(): number;
  /** A whole number in [0, below). */
  int(below: number): number;
  /** A whole number in [from, to], both included. */
  between(from: number, to: number): number;
  /** True with probability `p`. */
  chance(p: number): boolean;
  pick<T>(list: readonly T[]): T;
  /** A shuffled copy. */
  shuffle<T>(list: readonly T[]): T[];
}

/**
 * mulberry32, seeded by the argument, else by `TL_SEED`, else by chance. The seed is printed, so that
 * a failing run can be repeated with `TL_SEED=<seed>`.
 */
export function seededRandom(seed: number = seedOfEnvironment()): SeededRandom {
  console.log(`seed ${seed} (TL_SEED=${seed} repeats it)`);
  return randomOf(seed);
}

/** The same source without the print, for seeds drawn from one that was printed. */
export function randomOf(seed: number): SeededRandom {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const int = (below: number): number => Math.floor(next() * below);
  return {
    seed,
    next,
    int,
    between: (from, to) => from + int(to - from + 1),
    chance: (p) => next() < p,
    pick: <T>(list: readonly T[]): T => {
      if (list.length === 0) throw new Error("nothing to pick from");
      return list[int(list.length)] as T;
    },
    shuffle: <T>(list: readonly T[]): T[] => {
      const copy = [...list];
      for (let i = copy.length - 1; i > 0; i--) {
        const j = int(i + 1);
        [copy[i], copy[j]] = [copy[j] as T, copy[i] as T];
      }
      return copy;
    },
  };
}

function seedOfEnvironment(): number {
  const given = process.env["TL_SEED"];
  if (given === undefined || given === "") return randomInt(2 ** 32);
  const seed = Number(given);
  if (!Number.isInteger(seed)) throw new Error(`TL_SEED must be a whole number, not "${given}"`);
  return seed;
}
