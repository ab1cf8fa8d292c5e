import { randomOf, seededRandom } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { EventChains } from "../src/continuity.ts";
import { BrokerUnavailable } from "../src/errors.ts";
import type { LogMessage } from "../src/headers.ts";
import { type Page, Tail, type TailSource } from "../src/tail.ts";

/** A log of several runs, whose live copies and replica reads misbehave as the seed says. */
class FaultyLog implements TailSource<LogMessage> {
  readonly stored: LogMessage[] = [];
  readonly #random: () => number;
  readonly #listeners: Set<(m: LogMessage) => void> = new Set();
  readonly #held: LogMessage[] = [];
  readonly #runs: Map<string, { prev: number; seq: number }> = new Map();
  #away = false;

  constructor(random: () => number) {
    this.#random = random;
  }

  append(run: string, lines: number, end = false): LogMessage {
    const before = this.#runs.get(run) ?? { prev: 0, seq: 0 };
    const message: LogMessage = {
      run,
      streamSeq: this.stored.length + 1,
      prev: before.prev,
      firstSeq: before.seq + 1,
      lastSeq: before.seq + lines,
      attempt: 1,
      writer: "w",
      worker: "k",
      epoch: `e_${run}`,
      cmd: 0,
      barrier: 0,
      settled: 0,
      end,
      lane: before.prev === 0 ? "q" : "e",
      body: new Uint8Array(8),
    };
    this.stored.push(message);
    this.#runs.set(run, { prev: message.streamSeq, seq: message.lastSeq });
    return message;
  }

  /** The live copy: sent, lost, doubled or held back to come out of order. */
  live(message: LogMessage): void {
    const fate = this.#random();
    if (fate < 0.15) return;
    if (fate < 0.3) {
      this.#held.push(message);
      return;
    }
    this.#send(message);
    if (fate > 0.9) this.#send(message);
    if (this.#random() < 0.5) for (const late of this.#held.splice(0)) this.#send(late);
  }

  away(): void {
    this.#away = true;
  }

  back(): void {
    this.#away = false;
  }

  #send(message: LogMessage): void {
    for (const listener of this.#listeners) listener(message);
  }

  subscribe(onLive: (m: LogMessage) => void): { close(): void } {
    this.#listeners.add(onLive);
    return { close: () => this.#listeners.delete(onLive) };
  }

  async read(after: number, upTo?: number): Promise<Page<LogMessage>> {
    return this.#page((m) => m.streamSeq > after, upTo);
  }

  async readRun(run: string, after: number, upTo: number): Promise<Page<LogMessage>> {
    return this.#page((m) => m.run === run && m.streamSeq > after, upTo);
  }

  async #page(wanted: (m: LogMessage) => boolean, upTo?: number): Promise<Page<LogMessage>> {
    await Promise.resolve();
    if (this.#away || this.#random() < 0.05) throw new BrokerUnavailable("no answer");
    // A replica that lags knows only a prefix; the leader is asked when `upTo` demands it.
    const lag = this.#random() < 0.3 ? Math.floor(this.#random() * 4) : 0;
    const known = upTo === undefined ? this.stored.slice(0, this.stored.length - lag) : this.stored;
    const matching = known.filter(wanted);
    const size = 1 + Math.floor(this.#random() * 5);
    return { messages: matching.slice(0, size), end: matching.length <= size };
  }
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i += 1) await new Promise((resolve) => setImmediate(resolve));
}

async function play(seed: number, runs: readonly string[]): Promise<void> {
  const random = randomOf(seed);
  const next = (): number => random.next();
  const log = new FaultyLog(next);
  for (let i = 0; i < next() * 20; i += 1) log.append(pick(runs, next), 1 + Math.floor(next() * 3));
  const start = Math.floor(next() * (log.stored.length + 1));
  const chains = new EventChains(start);
  const delivered: LogMessage[] = [];
  let fault: Error | undefined;
  const sink = {
    message: (m: LogMessage, late: boolean) => {
      expect(late).toBe(m.streamSeq < Math.max(0, ...delivered.map((d) => d.streamSeq)));
      delivered.push(m);
    },
    level: () => undefined,
    fault: (error: Error) => (fault = error),
  };
  const tail = new Tail(log, chains, sink, () => turns(1));
  const ended = new Set<string>();
  for (let step = 0; step < 60; step += 1) {
    const act = next();
    const run = pick(runs, next);
    if (act < 0.7 && !ended.has(run)) {
      const end = next() < 0.03;
      if (end) ended.add(run);
      log.live(log.append(run, 1 + Math.floor(next() * 3), end));
    } else if (act < 0.75) log.away();
    else log.back();
    if (next() < 0.5) await turns(1);
  }
  log.back();
  // What position checks do, in the end: tell the tail of each run's last message.
  const wantedCount = log.stored.filter((m) => m.streamSeq > start).length;
  for (let round = 0; round < 2_000 && delivered.length < wantedCount; round += 1) {
    for (const run of runs) {
      const last = log.stored.findLast((m) => m.run === run);
      const reached = chains.reached(run) ?? start;
      if (!last || last.streamSeq <= reached) continue;
      if (last.streamSeq > tail.position) tail.observe(last.streamSeq);
      else tail.repair({ run, after: reached, upTo: last.streamSeq });
    }
    await turns(1);
  }
  tail.close();
  expect(fault).toBeUndefined();
  for (const run of runs) {
    const want = log.stored.filter((m) => m.run === run && m.streamSeq > start);
    const got = delivered.filter((m) => m.run === run);
    expect(got.map((m) => m.streamSeq)).toEqual(want.map((m) => m.streamSeq));
  }
}

function pick(from: readonly string[], next: () => number): string {
  return from[Math.floor(next() * from.length)] ?? "";
}

describe("a tail over a log with lost, doubled, reordered live copies and lagging replicas", () => {
  const base = seededRandom().seed;
  const seeds = Array.from({ length: 150 }, (_, i) => (base + i) >>> 0);

  test("[TAIL1] [TAIL3] [TAIL4] [TAIL6] [TAIL9] [INV2] one run: exactly the log", async () => {
    for (const seed of seeds) {
      await play(seed, ["r1"]).catch((cause: unknown) => {
        throw new Error(`failed with seed ${seed}`, { cause });
      });
    }
  });

  test("[TAIL1] [TAIL10] a session of three runs: exactly the log, per run", async () => {
    for (const seed of seeds) {
      await play(seed, ["r1", "r2", "r3"]).catch((cause: unknown) => {
        throw new Error(`failed with seed ${seed}`, { cause });
      });
    }
  });
});
