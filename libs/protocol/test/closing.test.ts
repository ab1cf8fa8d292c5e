import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  closingEvents,
  initialRunState,
  reduce,
  type Closing,
  type NewEvent,
  type RunState,
} from "../src/index.ts";
import { after, called, chunk, delta, opened, running, step } from "./events.ts";
import { logs } from "./log.ts";
import { seed } from "./seed.ts";

const failure = { code: "deadline", message: "late", retryable: false };
const CLOSINGS: readonly Closing[] = [
  { kind: "completed" },
  { kind: "failed", failure },
  { kind: "cancelled", by: "bob" },
  { kind: "interrupted", by: "bob", preserve_context: true },
  { kind: "interrupted", by: "bob", preserve_context: false },
];

const approval = (approval_id: string, step_id: string): NewEvent => ({
  type: "approval.requested",
  step_id,
  payload: {
    approval_id,
    operation: "shell",
    description: "rm -r /tmp/x",
    risk_level: "high",
    args_hash: "h",
    expires_at: 9e12,
    default: "deny",
  },
});

const busy = after(
  running,
  step("a"),
  step("b", "a"),
  opened("msg_1", "b"),
  chunk(0, "Hé👋"),
  delta(4, " live"),
  { ...called, step_id: "b" },
  approval("apr_1", "b"),
  { type: "input.requested", payload: { input_id: "in_1", prompt: "?" } },
);

const isOpen = (state: RunState): boolean =>
  state.tool_calls.some(({ status }) => status !== "completed" && status !== "failed") ||
  state.approvals.some(({ status }) => status === "open") ||
  state.messages.some(({ status }) => status === "open") ||
  state.steps.some(({ status }) => status === "running");

describe("closing what is open", () => {
  it("[CLO1] [C24] a cancellation says of each thing that it was cancelled, and by whom", () => {
    const cancelled = {
      code: "cancelled",
      message: "Stopped by the run's cancellation.",
      retryable: false,
    };
    expect(closingEvents(busy, { kind: "cancelled", by: "bob" })).toEqual([
      {
        type: "tool_call.failed",
        step_id: "b",
        payload: { tool_call_id: "tc_1", error: cancelled },
      },
      {
        type: "approval.resolved",
        step_id: "b",
        payload: { approval_id: "apr_1", decision: "deny", by: "bob", reason: "cancelled" },
      },
      {
        type: "message.completed",
        step_id: "b",
        payload: { message_id: "msg_1", length: 4, finish_reason: "cancelled" },
      },
      { type: "step.failed", step_id: "b", payload: { step_id: "b", error: cancelled } },
      { type: "step.failed", step_id: "a", payload: { step_id: "a", error: cancelled } },
    ]);
  });

  it.each([
    ["its failure", { kind: "failed", failure }, "error", failure.code, { reason: "run ended" }],
    [
      "that it came too late",
      { kind: "completed" },
      "stop",
      "agent_error",
      { reason: "run ended" },
    ],
    [
      "that it was interrupted",
      { kind: "interrupted", by: "bob", preserve_context: true },
      "interrupted",
      "interrupted",
      { by: "bob", reason: "interrupted" },
    ],
  ] as const)("[CLO1] another end says %s", (_, closing, finish, code, decision) => {
    const closed = after(busy, ...closingEvents(busy, closing));
    expect(closed.messages.map((m) => [m.status, m.finish_reason])).toEqual([
      ["completed", finish],
    ]);
    expect(closed.tool_calls.map((t) => t.error?.code)).toEqual([code]);
    expect(closed.steps.map((s) => [s.status, s.error?.code])).toEqual([
      ["failed", code],
      ["failed", code],
    ]);
    expect(closed.approvals).toMatchObject([{ status: "resolved", decision: "deny", ...decision }]);
  });

  it("[CLO2] an interrupt without context supersedes the steps, innermost first, with what they showed", () => {
    const events = closingEvents(busy, {
      kind: "interrupted",
      by: "bob",
      preserve_context: false,
    });
    expect(events.flatMap((e) => (e.type === "step.superseded" ? [e.step_id] : []))).toEqual([
      "b",
      "a",
    ]);
    const closed = after(busy, ...events);
    expect(closed.steps.map((s) => s.status)).toEqual(["superseded", "superseded"]);
    expect(closed.messages.map((m) => m.status)).toEqual(["superseded"]);
  });

  it("[CLO3] an input request stays open: nothing but an answer or the run's end ends it", () => {
    for (const closing of CLOSINGS) {
      expect(after(busy, ...closingEvents(busy, closing)).inputs).toBe(busy.inputs);
    }
  });

  it("[CLO1] over random logs: nothing is left open, and there is nothing to close twice", () => {
    fc.assert(
      fc.property(logs(), fc.constantFrom(...CLOSINGS), ({ events }, closing) => {
        const state = events.reduce(reduce, initialRunState("run_1"));
        const closed = after(state, ...closingEvents(state, closing));
        expect(isOpen(closed)).toBe(false);
        expect(closingEvents(closed, closing)).toEqual([]);
      }),
      { seed, numRuns: 300 },
    );
  });
});
