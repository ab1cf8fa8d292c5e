import type { RunRef, RunWriter } from "@throughline/broker";
import type { RunState } from "@throughline/protocol";
import { runStateSchema } from "@throughline/protocol/schemas";
import { randomOf, seededRandom } from "@throughline/testkit";
import { expect } from "vitest";
import type { Edge } from "../src/edge.ts";
import { type Client, completed, type Frame, note, range, type Stage } from "./stage.ts";

export function statesOf(client: Client): Map<string, RunState> {
  const frames = client.frames.filter((f) => f.type === "snapshot");
  return new Map(frames.map((f) => [f.run_id ?? "", runStateSchema.parse(f.state)]));
}

/** For each run: the events that came are those behind its state, up to what is stored, each once. */
export function check(client: Client, stored: ReadonlyMap<string, number>): void {
  const states = statesOf(client);
  for (const [run, last] of stored) {
    expect([run, client.seqs(run)]).toEqual([run, range((states.get(run)?.seq ?? 0) + 1, last)]);
  }
}

/**
 * Runs begin, go on and have their snapshots written while devices come to their session, through any
 * node. In the end each device has had, of each run, exactly what follows the state it began with.
 */
export async function comeWhileRunsGoOn(stage: Stage, nodes: readonly Edge[]): Promise<void> {
  const [first] = nodes;
  if (first === undefined) throw new Error("there must be a node to come to");
  const random = randomOf(seededRandom().int(2 ** 32));
  const session = await stage.session(first);
  const writers: { ref: RunRef; writer: RunWriter }[] = [];
  const devices: Client[] = [];
  const snapshots: Promise<unknown>[] = [];
  for (let step = 0; step < 400; step += 1) {
    const dice = random.next();
    const run = writers.length === 0 ? undefined : random.pick(writers);
    if (run === undefined || (dice < 0.03 && writers.length < 8)) {
      writers.push(await stage.run(session));
    } else if (dice < 0.75) {
      void run.writer.append(note(step));
    } else if (dice < 0.85) await run.writer.append(note(step));
    else if (dice < 0.92) snapshots.push(stage.snapshot(run.ref, run.writer));
    else if (devices.length < 30) {
      const device = await stage.connected(random.pick(nodes));
      device.send({
        type: "subscribe",
        id: `s${step}`,
        session_id: session,
        payload: { from: "snapshot" },
      });
      devices.push(device);
    }
  }
  await Promise.all(snapshots);
  const stored = new Map<string, number>();
  for (const { ref, writer } of writers) {
    await writer.append(completed);
    stored.set(ref.run, writer.stored.seq);
  }
  for (const device of devices) {
    await device.until(
      () => [...stored].every(([run, last]) => lastOf(device, run) === last),
      "the end of every run",
    );
    check(device, stored);
  }
  expect(devices.length).toBeGreaterThan(5);
}

function lastOf(device: Client, run: string): number {
  const event: Frame | undefined = device.events.findLast((f) => f.run_id === run);
  return event?.seq ?? statesOf(device).get(run)?.seq ?? 0;
}
