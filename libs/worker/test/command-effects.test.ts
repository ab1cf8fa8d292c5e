import type { StoredCommand } from "@throughline/broker";
import { describe, expect, it } from "vitest";
import type { RunState } from "@throughline/protocol";
import { reactTo as react, type Reaction, type Situation } from "../src/command-effects.ts";
import { stateOf } from "./events.ts";

const stored = (command: unknown, user = "ann"): StoredCommand => ({
  run: "run_1",
  streamSeq: 7,
  lastOnSubject: 0,
  user,
  hash: "h",
  at: 0,
  command,
  body: new Uint8Array(),
});
const command = (type: string, id: string, payload: unknown = {}): unknown => ({
  type,
  id,
  session_id: "ses_1",
  run_id: "run_1",
  payload,
});

const SITUATION: Situation = {
  attempt: 1,
  worker: "w",
  over: false,
  inboxAwaited: false,
  contradicts: false,
  checkInput: () => undefined,
  now: 0,
};
const reactTo = (
  of: StoredCommand,
  state: RunState,
  situation: Partial<Situation> = {},
): Reaction => react(of, state, { ...SITUATION, ...situation });

const running = stateOf();

describe("what a stored command does", () => {
  it("[CMDW4] a cancellation is carried out", () => {
    const reaction = reactTo(stored(command("run.cancel", "c1", { reason: "enough" })), running);
    expect(reaction).toEqual({
      kind: "cancel",
      command: { id: "c1", user: "ann", streamSeq: 7, reason: "enough" },
    });
  });

  it("[CMDW2] one that was answered before is passed over; another user's of the same id is not", () => {
    const answered = stateOf({
      type: "command.rejected",
      reply_to: "c1",
      reply_by: "ann",
      payload: { id: "c1", code: "not_allowed", message: "no" },
    });
    expect(reactTo(stored(command("run.cancel", "c1")), answered).kind).toBe("skip");
    expect(reactTo(stored(command("run.cancel", "c1"), "bob"), answered).kind).toBe("cancel");
    expect(
      reactTo(stored(command("run.cancel", "c1")), answered, { contradicts: true }),
    ).toMatchObject({
      kind: "answer",
      events: [{ type: "command.rejected", payload: { id: "c1", code: "idempotency_conflict" } }],
    });
  });

  it("[CMDW3] one that the status does not allow is rejected with the table's code", () => {
    const rejected = reactTo(stored(command("run.resume", "c2")), running);
    expect(rejected).toMatchObject({
      kind: "answer",
      events: [
        {
          type: "command.rejected",
          reply_to: "c2",
          reply_by: "ann",
          payload: { id: "c2", code: "not_allowed", current: { status: "running" } },
        },
      ],
    });
    const ended = stateOf({ type: "run.completed", payload: {} });
    expect(reactTo(stored(command("run.cancel", "c3")), ended)).toMatchObject({
      events: [{ payload: { code: "run_ended" } }],
    });
  });

  it.each([
    ["no JSON", undefined, "skip"],
    ["no object", [1], "skip"],
    ["an id that is none", command("run.cancel", "a b"), "skip"],
    ["a wrong payload", command("run.cancel", "c4", { reason: 5 }), "answer"],
    ["an unknown type", command("run.explode", "c5"), "answer"],
    ["one for the edge", { type: "heartbeat", id: "c6", payload: { ts: 1 } }, "answer"],
  ])("[CMDW9] %s", (_, value, kind) => {
    expect(reactTo(stored(value), running).kind).toBe(kind);
  });

  it("[EXE2][EXE6] an interrupt is carried out, but for an agent that is at its end", () => {
    const interrupt = stored(command("run.interrupt", "c1", { reason: "wait" }));
    expect(reactTo(interrupt, running)).toEqual({
      kind: "interrupt",
      request: { id: "c1", user: "ann", streamSeq: 7, reason: "wait", preserveContext: true },
    });
    expect(reactTo(interrupt, running, { over: true })).toMatchObject({
      kind: "answer",
      events: [{ payload: { code: "not_allowed" } }],
    });
  });

  it.each([
    ["run.continue", { content: "x" }],
    ["step.retry", { step_id: "s1" }],
  ])(
    "[EXE6] %s that finds the agent at its end is refused: nobody would act on it",
    (type, payload) => {
      const stored1 = stored(command(type, "c1", payload));
      expect(reactTo(stored1, running, { over: true })).toMatchObject({
        kind: "answer",
        events: [
          {
            type: "command.rejected",
            payload: { code: "not_allowed", current: { status: "running" } },
          },
        ],
      });
    },
  );

  it("[EXE6][EXE7] a paused run that fails at its deadline does not go on", () => {
    const paused = stateOf({ type: "run.interrupted", payload: { preserve_context: true } });
    for (const type of ["run.resume", "run.continue"]) {
      const late = stored(command(type, "c1", type === "run.resume" ? {} : { content: "x" }));
      expect(reactTo(late, paused, { over: true })).toMatchObject({
        kind: "answer",
        events: [{ type: "command.rejected", payload: { code: "not_allowed" } }],
      });
    }
  });

  it("[EXE8] an instruction is queued, or seen at once, or resumes the run", () => {
    const say = stored(command("run.continue", "c1", { content: "x" }));
    const paused = stateOf({ type: "run.interrupted", payload: { preserve_context: true } });
    const queued = (reaction: Reaction): unknown =>
      "events" in reaction && reaction.events.map(({ type, payload }) => [type, payload]);
    const item = { content: "x", by: "ann" };
    expect(queued(reactTo(say, running))).toEqual([["input.received", { ...item, queued: true }]]);
    expect(queued(reactTo(say, running, { inboxAwaited: true }))).toEqual([
      ["input.received", { ...item, queued: false }],
    ]);
    expect(reactTo(say, paused).kind).toBe("resume");
    expect(queued(reactTo(say, paused))).toEqual([
      ["input.received", { ...item, queued: false }],
      ["run.resumed", { attempt: 1, worker: "w" }],
    ]);
  });
});
