/**
 * Edges killed at random points while clients follow: what each client was given, put together over
 * all its connections, is the log. The two edges are killed by turns, and the killed one is back before
 * the other goes, as a rolling failure would have it.
 */
import { type Client, createClient } from "@throughline/client/node";
import type { DurableEvent } from "@throughline/protocol";
import { type Edge, type SeededRandom, removeDir, tempDir } from "@throughline/testkit";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import { recording } from "./recording.ts";
import { startWorld, type World } from "./world.ts";

/** Durable events of one run, as they were given. */
type Given = readonly DurableEvent[];

export class KillingGround {
  readonly #world: World;
  readonly #edges: readonly [Edge, Edge];
  readonly #folder: string;
  readonly #file: string;
  readonly #random: SeededRandom;
  #restarting: Promise<void> = Promise.resolve();
  #kills = 0;

  private constructor(world: World, edges: [Edge, Edge], folder: string, random: SeededRandom) {
    this.#world = world;
    this.#edges = edges;
    this.#folder = folder;
    this.#file = join(folder, "recording.jsonl");
    this.#random = random;
    writeFileSync(this.#file, recording(120));
  }

  static async open(random: SeededRandom): Promise<KillingGround> {
    const folder = tempDir("kill-points");
    const world = await startWorld();
    const edges = await Promise.all([world.edge(), world.edge()]);
    await world.runtime({ allowedRoots: [folder] });
    return new KillingGround(world, [edges[0], edges[1]], folder, random);
  }

  async close(): Promise<void> {
    await this.#restarting;
    await this.#world.dispose();
    removeDir(this.#folder);
  }

  /** So many kills, one a run; checks each run as it ends, for whoever followed the run and whoever followed the session. */
  async kill(points: number): Promise<void> {
    const follower = this.#client(0);
    const session = await follower.createSession();
    const whole = follower.follow({ session });
    const given = new Map<string, DurableEvent[]>();
    const runs: string[] = [];
    const reading = (async () => {
      let ended = 0;
      for await (const item of whole) {
        expect(["gap", "snapshot"]).not.toContain(item.type);
        if (!("seq" in item)) continue;
        given.set(item.run_id, [...(given.get(item.run_id) ?? []), item]);
        if (item.type === "run.completed" && ++ended === points) return;
      }
    })();
    for (let point = 0; point < points; point++) runs.push(await this.#onePoint(session, point));
    await reading;
    for (const run of runs) await this.#check(session, run, given.get(run) ?? []);
    follower.close();
  }

  async #onePoint(session: string, point: number): Promise<string> {
    const victim = this.#edges[this.#kills++ % 2];
    if (victim === undefined) throw new Error("two edges");
    await this.#restarting;
    const client = this.#client(this.#edges.indexOf(victim));
    const input = { file: this.#file, speed: 2 };
    const handle = await client.start({ session, agent: "replay", input });
    const given: DurableEvent[] = [];
    // From before the first event to after the last.
    const at = this.#random.int(360);
    let killed: Promise<unknown> | undefined;
    const strike = (): void => {
      killed = victim.kill();
    };
    if (at === 0) strike();
    for await (const item of handle) {
      expect(["gap", "snapshot"], `point ${point} at event ${at}`).not.toContain(item.type);
      if (!("seq" in item)) continue;
      given.push(item);
      if (item.seq === at) strike();
    }
    if (killed === undefined) strike();
    await killed;
    this.#restarting = victim.restart();
    await this.#check(session, handle.run_id, given);
    client.close();
    return handle.run_id;
  }

  async #check(session: string, run: string, given: Given): Promise<void> {
    const log = await this.#world.log(session, run);
    expect(log.at(-1)?.type).toBe("run.completed");
    expect(given.map(withoutCursor)).toEqual(log);
  }

  #client(first: number): Client {
    const urls = [this.#edges[first % 2], this.#edges[(first + 1) % 2]].flatMap((edge) =>
      edge === undefined ? [] : [edge.url],
    );
    return createClient({ urls, token: "dev.acme.ann", reconnect: { baseMs: 50, capMs: 500 } });
  }
}

function withoutCursor(event: DurableEvent): DurableEvent {
  const { cursor: _cursor, ...stored } = event;
  return stored;
}
