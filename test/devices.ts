/** Three devices that do as chance has it with one run, over two edges, and what must be true of it afterwards. */
import { type DurableEvent, isTerminal } from "@throughline/protocol";
import { type Edge, eventually, type SeededRandom } from "@throughline/testkit";
import { expect } from "vitest";
import { Device, type DeviceCommand } from "./device.ts";
import { type Frame, RawClient } from "./raw-client.ts";
import { RunModel } from "./run-model.ts";
import { type Op, SCRIPTED } from "./script.ts";
import { stateOf } from "./settled.ts";
import type { World } from "./world.ts";

export interface Chaos {
  readonly world: World;
  readonly edges: readonly Edge[];
  readonly random: SeededRandom;
  /** What each device does before the run is brought to its end. */
  readonly actions: number;
}

interface Sent {
  readonly command: DeviceCommand;
  readonly at: number;
  answer: Frame | undefined;
}

const DEVICES = 3;
/**
 * The worker drains the commands before it ends a run, and ends it at a cancellation: only what is
 * accepted while it does so, or behind the cancellation, may have the end as its answer.
 */
const UNANSWERED_MS = 500;

/** One run from its start to its end; throws where it is not what the model says. */
export async function chaos({ world, edges, random, actions }: Chaos): Promise<void> {
  const urls = edges.map(({ connectUrl }) => connectUrl);
  const commands = new Map<string, DeviceCommand>();
  const sent: Sent[][] = [];
  const first = await openFirst(random.pick(urls));
  const { session } = first;
  const devices = [first.device];
  while (devices.length < DEVICES) devices.push(await Device.open(random.pick(urls), session));
  const started = await first.device.ask({
    type: "run.start",
    id: "start",
    session_id: session,
    payload: {
      agent: SCRIPTED,
      input: { do: script(random) },
      tools: [{ name: "look" }, { name: "reach" }],
    },
  });
  const run = started.run_id ?? "";
  const to = { session_id: session, run_id: run };
  await Promise.all(devices.map((device) => device.event((f) => f.run_id === run)));

  const act = async (device: Device, index: number): Promise<void> => {
    const mine: Sent[] = (sent[index] = []);
    for (let n = 0; n < actions && !ended(device, run); n += 1) {
      const command = {
        ...to,
        ...pickCommand(device, run, random, n > actions / 2),
        id: `d${index}_${n}`,
      };
      commands.set(command.id, command);
      const entry: Sent = { command, at: Date.now(), answer: undefined };
      mine.push(entry);
      const asking = device.ask(command);
      if (random.chance(0.15)) await device.connect(random.pick(urls));
      entry.answer = await asking;
      if (random.chance(0.15)) await again(device, random.pick(mine), random);
      if (random.chance(0.3)) await new Promise((resolve) => setTimeout(resolve, random.int(20)));
    }
  };
  await Promise.all(devices.map(act));
  const last: Sent[] = [];
  sent.push(last);
  await bringToEnd(first.device, run, (command) => {
    const whole = { ...to, ...command, id: `end_${last.length}` };
    commands.set(whole.id, whole);
    const entry: Sent = { command: whole, at: Date.now(), answer: undefined };
    last.push(entry);
    return first.device.ask(whole).then((answer) => {
      entry.answer = answer;
    });
  });

  const log = await world.log(session, run);
  await Promise.all(
    devices.map((device) => device.event((f) => f.run_id === run && isTerminal(f.type))),
  );
  for (const device of devices) {
    expect(device.events(run).map((f) => f["event_id"])).toEqual(log.map((e) => e.event_id));
    device.close();
  }
  verify(log, run, commands, sent);
}

async function openFirst(url: string): Promise<{ device: Device; session: string }> {
  const client = await RawClient.connect(url);
  const session = await client.createSession();
  client.close();
  return { device: await Device.open(url, session), session };
}

function ended(device: Device, run: string): boolean {
  return device.events(run).some(({ type }) => isTerminal(type));
}

/** Two or three phases of requests at once, in steps or not. */
function script(random: SeededRandom): Op[] {
  const one = (): Op =>
    random.pick<Op>([
      { op: "approval", operation: "publish" },
      { op: "input", prompt: "Where to?" },
      {
        op: "tools",
        calls: [
          { name: "look", args: {} },
          { name: "double", args: { n: 1 } },
          { name: "reach", args: {} },
        ].slice(0, random.between(1, 3)),
      },
      { op: "say", text: "Well. " },
      { op: "stream", words: 10, everyMs: 2 },
    ]);
  const some = (): Op[] => Array.from({ length: random.between(1, 3) }, one);
  return Array.from({ length: random.between(2, 3) }, (_, n): Op[] => [
    { op: "all", do: [...some(), { op: "step", name: `step${n}`, do: some() }] },
    { op: "inbox" },
  ]).flat();
}

type Draft = { readonly type: string; readonly payload: Readonly<Record<string, unknown>> };

/**
 * Something that may or may not make sense. It is mostly about things that the device holds for open,
 * sometimes about any that it has seen, or that never were.
 *
 * @param late whether the run may be cancelled by now
 */
function pickCommand(device: Device, run: string, random: SeededRandom, late: boolean): Draft {
  const log: DurableEvent[] = JSON.parse(JSON.stringify(device.events(run)));
  const state = stateOf(log, run);
  const one = (open: readonly string[], all: readonly string[]): string => {
    const from = open.length > 0 && random.chance(0.7) ? open : all;
    return from.length > 0 && random.chance(0.95) ? random.pick(from) : "nothing";
  };
  const calls = state.tool_calls;
  const tool_call_id = one(
    calls
      .filter((c) => c.executor === "client" && (c.status === "pending" || c.status === "claimed"))
      .map((c) => c.tool_call_id),
    calls.map((c) => c.tool_call_id),
  );
  const claim_id = random.pick(["claim_a", "claim_b"]);
  const outcome = random.chance(0.8)
    ? { result: random.int(100) }
    : { error: { message: "it is dark" } };
  const draft = random.int(20);
  if (draft < 4)
    return {
      type: "approval.respond",
      payload: {
        approval_id: one(
          state.approvals.filter((a) => a.status === "open").map((a) => a.approval_id),
          state.approvals.map((a) => a.approval_id),
        ),
        decision: random.pick(["allow", "deny"]),
      },
    };
  if (draft < 9)
    return { type: "tool_call.claim", payload: { tool_call_id, claim_id, lease_ms: 600_000 } };
  if (draft < 13)
    return {
      type: "tool_result.report",
      payload: { tool_call_id, ...outcome, ...(random.chance(0.7) ? { claim_id } : {}) },
    };
  if (draft < 15)
    return {
      type: "input.respond",
      payload: {
        input_id: one(
          state.inputs.filter((i) => i.status === "open").map((i) => i.input_id),
          state.inputs.map((i) => i.input_id),
        ),
        content: random.int(100),
      },
    };
  if (draft < 16) return { type: "run.continue", payload: { content: random.int(100) } };
  if (draft < 17) return { type: "run.interrupt", payload: {} };
  if (draft < 19) return { type: "run.resume", payload: {} };
  return late && random.chance(0.2)
    ? { type: "run.cancel", payload: {} }
    : { type: "step.retry", payload: { step_id: "nothing" } };
}

/** A command comes again: as it was, which is a duplicate, or with another content, which is a conflict. */
async function again(
  device: Device,
  { command, answer }: Sent,
  random: SeededRandom,
): Promise<void> {
  if (answer?.type !== "command.accepted") return;
  if (random.chance(0.6)) {
    const second = await device.ask(command);
    expect(second).toMatchObject({ type: "command.accepted", duplicate: true });
    return;
  }
  const other = { ...command, type: "run.continue", payload: { content: "something else" } };
  const second = await device.ask(other);
  expect(second.type).toBe("command.rejected");
  expect(["idempotency_conflict", "run_ended"]).toContain(second.code);
}

/** Answers whatever is open until the run is over. */
async function bringToEnd(
  device: Device,
  run: string,
  ask: (draft: Draft) => Promise<void>,
): Promise<void> {
  for (let looks = 0; ; looks += 1) {
    if (looks > 500)
      throw new Error(`the run does not end: ${JSON.stringify(device.events(run).slice(-5))}`);
    const log: DurableEvent[] = JSON.parse(JSON.stringify(device.events(run)));
    const state = stateOf(log, run);
    if (state.ended_at !== undefined) return;
    const drafts: Draft[] = [
      ...(state.status === "interrupted" ? [{ type: "run.resume", payload: {} }] : []),
      ...state.approvals
        .filter(({ status }) => status === "open")
        .map(({ approval_id }) => ({
          type: "approval.respond",
          payload: { approval_id, decision: "allow" },
        })),
      ...state.inputs
        .filter(({ status }) => status === "open")
        .map(({ input_id }) => ({ type: "input.respond", payload: { input_id, content: "end" } })),
      ...state.tool_calls
        .filter(
          (c) => c.executor === "client" && (c.status === "pending" || c.status === "claimed"),
        )
        .map(({ tool_call_id, claim }) => ({
          type: "tool_result.report",
          payload: {
            tool_call_id,
            result: "end",
            ...(claim === undefined ? {} : { claim_id: claim.claim_id }),
          },
        })),
    ];
    for (const draft of drafts) await ask(draft);
    await eventually(() => device.events(run).length > log.length, {
      timeoutMs: 5_000,
      what: () => `something new after ${JSON.stringify(log.slice(-3))}`,
    });
  }
}

function verify(
  log: readonly DurableEvent[],
  run: string,
  commands: ReadonlyMap<string, DeviceCommand>,
  sent: readonly (readonly Sent[])[],
): void {
  const model = new RunModel(commands);
  for (const event of log) {
    try {
      model.take(JSON.parse(JSON.stringify(event)));
    } catch (cause) {
      const around = log.filter((e) => e.seq <= event.seq && e.seq > event.seq - 10);
      throw new Error(
        `event ${event.seq}: ${cause instanceof Error ? cause.message : String(cause)}\n${around.map((e) => JSON.stringify(e)).join("\n")}`,
        { cause },
      );
    }
  }
  const end = log.at(-1);
  const cancelled = sent.flat().find(({ command }) => command.id === end?.reply_to);
  const closedAt = cancelled?.at ?? end?.ts ?? 0;
  for (const mine of sent) {
    let before = 0;
    for (const { command, answer, at } of mine) {
      const seq = model.answers.get(command.id);
      if (answer?.type === "command.rejected") {
        expect(answer.code).toBe("run_ended");
        expect(seq).toBeUndefined();
      } else if (seq === undefined)
        expect(closedAt - at, `${JSON.stringify(command)} has no answer`).toBeLessThan(
          UNANSWERED_MS,
        );
      else {
        // One device sends the next when the last is stored: they take effect in that order.
        expect(seq).toBeGreaterThan(before);
        before = seq;
      }
    }
  }
  const state = stateOf(log, run);
  expect(
    state.approvals.map(({ approval_id, decision, by }) => [approval_id, decision, by]),
  ).toEqual([...model.approvals].map(([id, { decision, by }]) => [id, decision, by]));
  expect(state.tool_calls.map(({ tool_call_id, status }) => [tool_call_id, status])).toEqual(
    [...model.calls].map(([id, { status }]) => [id, status]),
  );
  expect(state.inputs.map(({ input_id, content }) => [input_id, content])).toEqual(
    [...model.inputs].map(([id, { content }]) => [id, content]),
  );
  expect(state.inbox.map(({ content }) => content)).toEqual(model.inbox);
}
