/**
 * Workers killed in the middle of a run that asks for everything a device can be asked for. What comes
 * of the run must not depend on it. Workers host one run each, so that a kill concerns one run and
 * several points are tried at a time.
 */
import { type DurableEvent, isTerminal } from "@throughline/protocol";
import type { Edge, Service } from "@throughline/testkit";
import { expect } from "vitest";
import { type Frame, RawClient } from "./raw-client.ts";
import { SCRIPTED } from "./script.ts";
import { settled, stateOf } from "./settled.ts";
import { answerTo, tour, TOUR_TOOLS } from "./tour.ts";
import { startWorld, type World } from "./world.ts";

/** At which event the worker that has the run is killed; asked with each event as the device sees it, once. */
export type Strike = (event: Frame) => boolean;

/** Runs at a time; each needs a worker, and one to take over. */
const LANES = 3;
const WORKERS = 6;
const ACK_WAIT_MS = 600;

export class Takeovers {
  readonly #world: World;
  readonly #edge: Edge;
  readonly #workers: readonly Service[];
  #undisturbed: { readonly length: number; readonly outcome: unknown } | undefined;
  #marks = 0;
  /** Attempts that began because a worker had been killed. */
  takeovers = 0;

  private constructor(world: World, edge: Edge, workers: readonly Service[]) {
    this.#world = world;
    this.#edge = edge;
    this.#workers = workers;
  }

  static async open(): Promise<Takeovers> {
    const world = await startWorld();
    const edge = await world.edge();
    const worker = (): Promise<Service> => world.worker({ capacity: 1, ackWaitMs: ACK_WAIT_MS });
    return new Takeovers(world, edge, await Promise.all(Array.from({ length: WORKERS }, worker)));
  }

  close(): Promise<void> {
    return this.#world.dispose();
  }

  /** Events of the run when nobody is killed. */
  async length(): Promise<number> {
    if (this.#undisturbed === undefined) {
      const { log, run } = await this.#run([]);
      expect(log.at(-1)?.type, JSON.stringify(log.at(-1))).toBe("run.completed");
      this.#undisturbed = { length: log.length, outcome: outcomeOf(log, run) };
    }
    return this.#undisturbed.length;
  }

  /** One run for each list of kills, which follow each other in the order given. */
  async kill(runs: readonly (readonly Strike[])[]): Promise<void> {
    await this.length();
    const waiting = runs.map((strikes, index) => ({ strikes, index }));
    const lane = async (): Promise<void> => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const { strikes, index } = next;
        await this.#killed(strikes).catch((cause: unknown) => {
          throw new Error(`run ${index} of ${runs.length}`, { cause });
        });
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
  }

  async #killed(strikes: readonly Strike[]): Promise<void> {
    const { client, log, run, mark } = await this.#run(strikes);
    this.takeovers += log.filter(({ type }) => type === "run.resumed").length;
    expect(log.map(({ seq }) => seq)).toEqual(log.map((_, i) => i + 1));
    expect(client.events(run).map((f) => f["event_id"])).toEqual(log.map((e) => e.event_id));
    expect(log.filter(({ type }) => isTerminal(type)).length).toBe(1);
    expect(log.at(-1)?.type).toBe("run.completed");
    expect(outcomeOf(log, run)).toEqual(this.#undisturbed?.outcome);
    this.#tookEffectOnce(log, run, mark);
  }

  #tookEffectOnce(log: readonly DurableEvent[], run: string, mark: string): void {
    const keys = new Map<string, string>();
    const done: string[] = [];
    for (const event of log) {
      if (event.type === "step.started") keys.set(event.payload.step_id, event.key ?? "");
      if (event.type === "step.completed") done.push(keys.get(event.payload.step_id) ?? "?");
      if (event.type === "tool_call.completed" || event.type === "tool_call.failed")
        done.push(event.payload.tool_call_id);
      if (event.type === "approval.resolved") done.push(event.payload.approval_id);
      if (event.type === "input.received") done.push(event.payload.input_id ?? "?");
      if (event.reply_to !== undefined) done.push(`answer to ${event.reply_to}`);
    }
    expect(done.toSorted()).toEqual([...new Set(done)].toSorted());
    // A tool that says it is idempotent may be begun twice, under one id.
    expect(log.filter(({ type }) => type === "tool_call.created").length).toBe(2);
    const effects = this.#world.effects().filter((line) => line === `double ${mark}`);
    expect([1, 2]).toContain(effects.length);
    // What a step did counts as done when it has ended; then it is not begun again.
    const ended = this.#world.effects().filter((line) => line === `done ${run} publish`);
    expect([1, 2]).toContain(ended.length);
  }

  /** A run from start to end, on a session of its own. */
  async #run(strikes: readonly Strike[]): Promise<{
    client: RawClient;
    log: DurableEvent[];
    run: string;
    mark: string;
  }> {
    const mark = `mark_${(this.#marks += 1)}`;
    const client = await RawClient.connect(this.#edge.connectUrl);
    const session = await client.createSession();
    await client.subscribe(session);
    const kills: Promise<void>[] = [];
    let holder: Service | undefined;
    let left = strikes;
    client.listen((frame) => {
      if (frame.seq === undefined) return;
      if (frame.type === "run.started" || frame.type === "run.resumed")
        holder = this.#workers.find((worker) =>
          String(frame.payload?.["worker"]).startsWith(`${worker.nodeId}-`),
        );
      const [strike, ...rest] = left;
      if (holder !== undefined && strike?.(frame) === true) {
        left = rest;
        kills.push(this.#kill(holder));
        holder = undefined;
      }
      const answer = answerTo(frame);
      if (answer) client.send(answer);
    });
    const accepted = await client.ask({
      type: "run.start",
      session_id: session,
      payload: { agent: SCRIPTED, input: tour(mark), tools: TOUR_TOOLS },
    });
    const run = accepted.run_id;
    if (run === undefined) throw new Error(`not started: ${JSON.stringify(accepted)}`);
    await client.terminal(run, 30_000);
    await Promise.all(kills);
    client.close();
    return { client, log: await this.#world.log(session, run), run, mark };
  }

  async #kill(worker: Service): Promise<void> {
    await worker.kill();
    await worker.restart();
  }
}

function outcomeOf(log: readonly DurableEvent[], run: string): unknown {
  const outcome = JSON.stringify(settled(stateOf(log, run)));
  return JSON.parse(outcome.replaceAll(/mark_\d+/g, "mark"));
}

/** At event `seq`, or the first one after it that is seen. */
export function atSeq(seq: number): Strike {
  return (event) => (event.seq ?? 0) >= seq;
}
