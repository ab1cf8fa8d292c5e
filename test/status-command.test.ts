/** Every cell of the table "run status × command" (libs/protocol), against real processes. */
import {
  type ErrorCode,
  type RunCommandType,
  type RunStatus,
  type Transition,
  TRANSITIONS,
} from "@throughline/protocol";
import { type Edge, eventually } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Frame, RawClient } from "./raw-client.ts";
import { LATE, type Op } from "./script.ts";
import { answerInLog, eventOf, order, startScript, type Target } from "./scripted-run.ts";
import { stateOf } from "./settled.ts";
import { startWorld, type World } from "./world.ts";

const STATUSES = Object.keys(TRANSITIONS).filter(isStatus);
const COMMANDS = Object.keys(TRANSITIONS.absent).filter(isCommand);

function isStatus(name: string): name is RunStatus {
  return Object.hasOwn(TRANSITIONS, name);
}

function isCommand(name: string): name is RunCommandType {
  return Object.hasOwn(TRANSITIONS.absent, name);
}

let world: World;
let client: RawClient;
let session: string;
let edges: Edge[];

beforeAll(async () => {
  world = await startWorld();
  [edges] = await Promise.all([Promise.all([world.edge(), world.edge()]), world.worker()]);
  client = await RawClient.connect(edges[0]?.connectUrl ?? "");
  session = await client.createSession();
  await client.subscribe(session);
});
afterAll(async () => {
  client.terminate();
  await world.dispose();
});

/** What a run has that a command can name; empty ids are of nothing. */
interface Things {
  readonly approval_id: string;
  readonly tool_call_id: string;
  readonly input_id: string;
  readonly step_id: string;
}

const NOTHING: Things = {
  approval_id: "nothing",
  tool_call_id: "nothing",
  input_id: "nothing",
  step_id: "nothing",
};

const APPROVAL: Op = { op: "approval", operation: "publish" };
const CALL: Op = { op: "tools", calls: [{ name: "look", args: {} }] };
const INPUT: Op = { op: "input", prompt: "Where to?" };
const FLAKY: Op = { op: "step", name: "flaky", do: [], fails: 1, ask: true };
const SLEEP: Op = { op: "sleep", ms: 60_000 };

/** What a run does to come into a status and stay there. */
const SCRIPTS: Readonly<Record<Exclude<RunStatus, "absent">, readonly Op[]>> = {
  queued: [SLEEP],
  running: [SLEEP],
  waiting_approval: [{ op: "all", do: [APPROVAL, CALL, INPUT, FLAKY] }],
  waiting_tools: [CALL],
  waiting_input: [{ op: "all", do: [CALL, INPUT, FLAKY] }],
  interrupted: [{ op: "all", do: [APPROVAL, CALL, INPUT, FLAKY] }],
  completed: [{ op: "emit", name: "done" }],
  failed: [{ op: "fail", code: "on_purpose" }],
  cancelled: [SLEEP],
};

/**
 * Where the table says that the command has an effect, and the thing it names decides otherwise: it is
 * not there in this status, or an interrupt has closed it.
 */
const BY_THING: Partial<Record<RunStatus, Partial<Record<RunCommandType, ErrorCode>>>> = {
  running: {
    "step.retry": "not_found",
    "approval.respond": "not_found",
    "tool_call.claim": "not_found",
    "tool_result.report": "not_found",
    "input.respond": "not_found",
  },
  waiting_tools: {
    "step.retry": "not_found",
    "approval.respond": "not_found",
    "input.respond": "not_found",
  },
  waiting_input: { "approval.respond": "not_found" },
  interrupted: {
    "approval.respond": "already_resolved",
    "tool_call.claim": "already_resolved",
    "tool_result.report": "already_resolved",
  },
};

function expected(status: RunStatus, command: RunCommandType): Transition {
  const code = BY_THING[status]?.[command];
  return code === undefined ? TRANSITIONS[status][command] : { code };
}

function payloadOf(command: RunCommandType, things: Things): Record<string, unknown> {
  const { approval_id, tool_call_id, input_id, step_id } = things;
  switch (command) {
    case "run.continue":
      return { content: "go on" };
    case "step.retry":
      return { step_id };
    case "approval.respond":
      return { approval_id, decision: "allow" };
    case "tool_call.claim":
      return { tool_call_id, claim_id: "claim" };
    case "tool_result.report":
      return { tool_call_id, result: 1 };
    case "input.respond":
      return { input_id, content: "home" };
    case "run.cancel":
    case "run.interrupt":
    case "run.resume":
    case "run.retry":
      return {};
  }
}

/** A run in a status, and what in it can be named. */
async function runIn(status: RunStatus): Promise<Target & { readonly things: Things }> {
  if (status === "absent") return { session, run: "run_of_nobody", things: NOTHING };
  const script = SCRIPTS[status];
  const target = await startScript(client, session, script, {
    tools: ["look"],
    ...(status === "queued" ? { agent: LATE } : {}),
  });
  if (status === "queued") return { ...target, things: NOTHING };
  const idOf = async (type: string, field: keyof Things): Promise<string> =>
    String((await eventOf(client, target, type)).payload?.[field]);
  const all = script.flatMap((op) => (op.op === "all" ? op.do : [op]));
  const things: Things = {
    approval_id: all.includes(APPROVAL)
      ? await idOf("approval.requested", "approval_id")
      : "nothing",
    tool_call_id: all.includes(CALL) ? await idOf("tool_call.created", "tool_call_id") : "nothing",
    input_id: all.includes(INPUT) ? await idOf("input.requested", "input_id") : "nothing",
    step_id: all.includes(FLAKY) ? await idOf("step.failed", "step_id") : "nothing",
  };
  if (status === "interrupted") order(client, target, "run.interrupt");
  if (status === "cancelled") order(client, target, "run.cancel");
  await reaches(target, status);
  return { ...target, things };
}

/** Waits until the log says that the run is in a status. */
async function reaches(target: Target, status: RunStatus): Promise<void> {
  const state = (): RunStatus =>
    stateOf(
      // The client's frames are the log, with a cursor each.
      client.events(target.run).map((frame) => JSON.parse(JSON.stringify(frame))),
      target.run,
    ).status;
  await eventually(() => state() === status, { what: `the run is ${status}` });
}

/** Where the answer comes from: the edge tells of what was not stored, the log of what was. */
async function answerOf(id: string): Promise<{ by: "edge" | "log"; answer: Frame }> {
  const first = await client.frame((f) => f.seq === undefined && f.id === id);
  if (first.type === "command.rejected") return { by: "edge", answer: first };
  return { by: "log", answer: await answerInLog(client, id) };
}

async function walk(
  status: RunStatus,
  command: RunCommandType,
  woken: Promise<void>,
): Promise<void> {
  const { things, ...target } = await runIn(status);
  const want = expected(status, command);
  const id = order(client, target, command, payloadOf(command, things));
  const over = status === "completed" || status === "failed" || status === "cancelled";
  if (over && command === "run.retry") return walkRetry(target, id);
  if (status === "queued") {
    const accepted = await client.frame((f) => f.seq === undefined && f.id === id);
    sent += 1;
    if (accepted.type === "command.accepted") await woken;
  }
  const { by, answer } = await answerOf(id);
  if ("code" in want) {
    expect(answer.type).toBe("command.rejected");
    expect(by === "edge" ? answer.code : answer.payload?.["code"]).toBe(want.code);
  } else {
    expect(answer.type).toBe(want.event);
    expect(answer["reply_by"]).toBe("ann");
  }
  if (status === "absent" || over) expect(by).toBe("edge");
  const log = await world.log(session, target.run);
  expect(log.filter(({ reply_to }) => reply_to === id).length).toBe(by === "edge" ? 0 : 1);
}

/** Of a finished run: the new run's first event answers it, in a log of its own. */
async function walkRetry(target: Target, id: string): Promise<void> {
  const accepted = await client.frame((f) => f.seq === undefined && f.id === id);
  expect(accepted.type).toBe("command.accepted");
  expect(accepted.run_id).not.toBe(target.run);
  const queued = await client.frame((f) => f.run_id === accepted.run_id && f.seq === 1);
  expect(queued).toMatchObject({ type: "run.queued", payload: { retry_of: target.run } });
  order(client, { session, run: accepted.run_id ?? "" }, "run.cancel");
}

let sent = 0;

describe("status × command", () => {
  test("each cell: the effect or the error code as written", async () => {
    let wake = (): void => undefined;
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const cells = STATUSES.flatMap((status) =>
      COMMANDS.map((command) => ({ status, command, name: `${command} to a ${status} run` })),
    );
    expect(cells.length).toBe(100);
    const faults: string[] = [];
    const lane = async (waiting: typeof cells): Promise<void> => {
      for (let cell = waiting.shift(); cell; cell = waiting.shift()) {
        const { status, command, name } = cell;
        await walk(status, command, woken).catch((error: unknown) =>
          faults.push(`${name}: ${error instanceof Error ? error.message : String(error)}`),
        );
      }
    };
    // Those to queued runs wait for each other; of the others so many at a time as a connection may have.
    const queued = cells.filter(({ status }) => status === "queued");
    const others = cells.filter(({ status }) => status !== "queued");
    const walks = [
      ...queued.map((cell) => lane([cell])),
      ...Array.from({ length: 30 }, () => lane(others)),
    ];
    await eventually(() => sent === COMMANDS.length, { timeoutMs: 60_000 });
    await world.worker({ agents: [LATE] });
    wake();
    await Promise.all(walks);
    expect(faults).toEqual([]);
  }, 120_000);

  const ACTIVE = ["running", "waiting_approval", "waiting_tools", "waiting_input", "interrupted"];
  test.each(ACTIVE.filter(isStatus))(
    "a thing that a %s run does not have is `not_found`, and a wrong hash or request is `stale`",
    async (status) => {
      const { things: _things, ...target } = await runIn(status);
      for (const command of COMMANDS) {
        if (command.startsWith("run.")) continue;
        const id = order(client, target, command, payloadOf(command, NOTHING));
        const { by, answer } = await answerOf(id);
        expect([command, by, answer.payload?.["code"]]).toEqual([command, "log", "not_found"]);
      }
      if (status !== "waiting_approval") return;
      const { approval_id } = _things;
      for (const wrong of [
        { payload: { approval_id, decision: "allow", args_hash: "0" } },
        { reply_to: `${target.run}.1`, payload: { approval_id, decision: "allow" } },
      ]) {
        const id = client.send({
          type: "approval.respond",
          session_id: session,
          run_id: target.run,
          ...wrong,
        });
        expect((await answerOf(id)).answer.payload?.["code"]).toBe("stale");
      }
    },
  );

  test("an instruction to a run that waits for its inbox is not queued", async () => {
    const target = await startScript(client, session, [{ op: "inbox", wait: true }]);
    await reaches(target, "waiting_input");
    const id = order(client, target, "run.continue", { content: "now" });
    expect(await answerInLog(client, id)).toMatchObject({
      type: "input.received",
      payload: { content: "now", queued: false },
    });
    expect((await client.terminal(target.run)).payload?.["output"]).toEqual(["now"]);
  });

  test("an instruction to a busy run is queued, and seen at its next look", async () => {
    const target = await startScript(client, session, [INPUT, { op: "inbox" }]);
    const { payload } = await eventOf(client, target, "input.requested");
    const id = order(client, target, "run.continue", { content: "by the way" });
    expect(await answerInLog(client, id)).toMatchObject({ payload: { queued: true } });
    order(client, target, "input.respond", { input_id: payload?.["input_id"], content: 1 });
    expect((await client.terminal(target.run)).payload?.["output"]).toEqual([1, ["by the way"]]);
  });
});
