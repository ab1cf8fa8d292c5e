import { reduce, type NewEvent, type RunState } from "@throughline/protocol";
import { describe, expect, it } from "vitest";
import { doneOperations } from "../src/done-operations.ts";
import {
  closeOpen,
  failed,
  supersedeOpenSteps,
  terminalEvent,
  type Ending,
} from "../src/ending.ts";
import {
  chunk,
  messageCompleted,
  messageStarted,
  stateOf,
  stepCompleted,
  stepStarted,
  stored,
} from "./events.ts";

const after = (state: RunState, events: readonly NewEvent[]): RunState =>
  events.reduce((held, event) => reduce(held, stored(event, held.seq + 1)), state);

const cancelled: Ending = {
  kind: "cancelled",
  command: { id: "c1", user: "ann", streamSeq: 7, reason: "enough" },
};

const busy = stateOf(
  stepStarted("s1", "one#1"),
  stepCompleted("s1", 1),
  stepStarted("s2", "two#1"),
  stepStarted("s3", "two#1/three#1", "s2"),
  messageStarted("m1", "@message#1"),
  chunk("m1", 0, "héllo"),
  messageStarted("m2", "two#1/@message#1", "s2"),
  messageCompleted("m2", 0),
  {
    type: "tool_call.created",
    payload: {
      tool_call_id: "t1",
      name: "ls",
      args: {},
      executor: "worker",
      requires_approval: false,
    },
  },
);

describe("closing what is open", () => {
  it.each([
    ["cancelled", cancelled, "cancelled", "cancelled"],
    ["failed", failed("deadline", "late", "deadline"), "error", "deadline"],
    ["completed", { kind: "completed", output: 1 } as const, "stop", "agent_error"],
  ])("[FIN1] leaves nothing open before %s", (_, ending, finish, code) => {
    const events = closeOpen(busy, ending);
    const closed = after(busy, events);
    expect(closed.messages.map((m) => [m.status, m.finish_reason])).toEqual([
      ["completed", finish],
      ["completed", "stop"],
    ]);
    expect(closed.steps.map((s) => s.status)).toEqual(["completed", "failed", "failed"]);
    expect(closed.tool_calls.map((t) => [t.status, t.error?.code])).toEqual([["failed", code]]);
    expect(events.find((e) => e.type === "message.completed")?.payload).toMatchObject({
      length: 5,
    });
    // Inner steps end before the steps that they are in.
    expect(events.flatMap((e) => (e.type === "step.failed" ? [e.step_id] : []))).toEqual([
      "s3",
      "s2",
    ]);
    expect(closeOpen(closed, ending)).toEqual([]);
  });

  it("[CMDW4] the cancellation answers its command", () => {
    expect(terminalEvent(busy, cancelled as Exclude<Ending, { kind: "handback" }>)).toEqual({
      type: "run.cancelled",
      reply_to: "c1",
      reply_by: "ann",
      payload: { by: "ann", reason: "enough" },
    });
  });
});

describe("taking over", () => {
  it("[HOST6] supersedes running steps, the innermost first, and their messages with them", () => {
    const events = supersedeOpenSteps(busy);
    expect(events.map((e) => e.step_id)).toEqual(["s3", "s2"]);
    const state = after(busy, events);
    expect(state.steps.map((s) => s.status)).toEqual(["completed", "superseded", "superseded"]);
    const done = doneOperations(state);
    expect(done.step("one#1")?.output).toBe(1);
    expect(done.step("two#1")).toBeUndefined();
    expect(done.hasMessage("two#1/@message#1")).toBe(false);
    expect(done.hasMessage("@message#1")).toBe(false);
  });

  it("[HOST7] is no progress by itself", () => {
    const resumed: NewEvent = { type: "run.resumed", payload: { attempt: 2, worker: "w2" } };
    const idle = stateOf(stepStarted("s2", "two#1"), messageStarted("m1", "@message#1"));
    expect(after(idle, [resumed, ...supersedeOpenSteps(idle)]).idle_attempts).toBe(2);
  });
});
