import type { NewEvent, RunState } from "@throughline/protocol";
import { parseCommand } from "@throughline/protocol/schemas";
import { describe, expect, it } from "vitest";
import { type InputCheck, judge, type RequestCommand } from "../src/requests/verdicts.ts";
import { stateOf } from "./events.ts";

// Events of `stateOf` have ts = seq, so all of this happens in the first milliseconds of the epoch.
const EXPIRES_AT = 1_000;
const LEASE_MS = 500;

const approvalRequested: NewEvent = {
  type: "approval.requested",
  step_id: "stp_1",
  key: "@approval#1",
  payload: {
    approval_id: "apr_1",
    operation: "deploy",
    description: "to production",
    risk_level: "high",
    args_hash: "right",
    expires_at: EXPIRES_AT,
    default: "deny",
  },
};
/** The request's event: the third, after `run.queued` and `run.started`. */
const REQUEST = "run_1.3";

const inputRequested: NewEvent = {
  type: "input.requested",
  payload: { input_id: "inp_1", prompt: "Your name?" },
};

const created = (id: string, executor: "client" | "worker" = "client"): NewEvent => ({
  type: "tool_call.created",
  step_id: "stp_1",
  payload: { tool_call_id: id, name: "t", args: null, executor, requires_approval: false },
});
const claimed = (id: string, claim = "cl_ann", by = "ann"): NewEvent => ({
  type: "tool_call.status",
  payload: { tool_call_id: id, status: "claimed", claim_id: claim, lease_ms: LEASE_MS, by },
});
const pending = (id: string): NewEvent => ({
  type: "tool_call.status",
  payload: { tool_call_id: id, status: "pending" },
});
const completed = (id: string): NewEvent => ({
  type: "tool_call.completed",
  payload: { tool_call_id: id, result: 1 },
});
const failed = (id: string): NewEvent => ({
  type: "tool_call.failed",
  payload: { tool_call_id: id, error: { code: "e", message: "m", retryable: false } },
});

interface Over {
  readonly reply_to?: string;
  readonly user?: string;
  readonly at?: number;
  readonly now?: number;
  readonly check?: InputCheck;
}

function judged(
  state: RunState,
  type: RequestCommand["type"],
  payload: unknown,
  over: Over = {},
): readonly NewEvent[] {
  const { reply_to, user = "ann", at = 0, now = 10, check } = over;
  const parsed = parseCommand({
    type,
    id: "cmd_1",
    session_id: "ses_1",
    run_id: "run_1",
    ...(reply_to === undefined ? {} : { reply_to }),
    payload,
  });
  if (!parsed.ok) throw new Error(parsed.message);
  const events = judge(parsed.command as RequestCommand, { user, at }, state, now, check);
  expect(events.length).toBeGreaterThan(0);
  return events;
}

/** A verdict in one line: the type, or the code of the rejection. */
function inShort(event: NewEvent): string {
  return event.type === "command.rejected" ? event.payload.code : event.type;
}

describe("approval.respond", () => {
  const open = stateOf(approvalRequested);
  const allow = { approval_id: "apr_1", decision: "allow" };
  const respond = (state: RunState, payload: unknown, over?: Over): readonly NewEvent[] =>
    judged(state, "approval.respond", payload, over);

  it("[REQ2] decides, once: the effect names who decided, and answers the command", () => {
    const [event, ...more] = respond(open, { ...allow, reason: "fine" }, { user: "bob" });
    expect(event).toEqual({
      type: "approval.resolved",
      step_id: "stp_1",
      reply_to: "cmd_1",
      reply_by: "bob",
      payload: { approval_id: "apr_1", decision: "allow", by: "bob", reason: "fine" },
    });
    expect(more).toEqual([]);
  });

  it.each([
    ["nothing but the id", {}, {}, "approval.resolved"],
    ["the right hash", { args_hash: "right" }, {}, "approval.resolved"],
    ["another hash", { args_hash: "wrong" }, {}, "stale"],
    ["the request's event", {}, { reply_to: REQUEST }, "approval.resolved"],
    ["another event", {}, { reply_to: "run_1.4" }, "stale"],
    ["a command instead of the event", {}, { reply_to: "cmd_0" }, "stale"],
    ["another event and the right hash", { args_hash: "right" }, { reply_to: "run_2.3" }, "stale"],
    ["an approval that nobody asked for", { approval_id: "apr_2" }, {}, "not_found"],
  ])("[APR2] with %s", (_, payload, over, verdict) => {
    expect(respond(open, { ...allow, ...payload }, over).map(inShort)).toEqual([verdict]);
  });

  it("[APR2] a stale answer is told what the request is", () => {
    const [event] = respond(open, { ...allow, args_hash: "wrong" });
    expect(event?.payload).toMatchObject({
      id: "cmd_1",
      code: "stale",
      current: { approval_id: "apr_1", event_id: REQUEST, args_hash: "right" },
    });
  });

  it.each<[string, NewEvent, unknown]>([
    [
      "was denied by somebody",
      {
        type: "approval.resolved",
        payload: { approval_id: "apr_1", decision: "deny", by: "eve", reason: "no" },
      },
      { approval_id: "apr_1", decision: "deny", by: "eve", reason: "no" },
    ],
    [
      "has expired",
      { type: "approval.resolved", payload: { approval_id: "apr_1", decision: "expired" } },
      { approval_id: "apr_1", decision: "expired", default: "deny" },
    ],
  ])("[REQ2][C14] one that %s is answered with how it was decided", (_, resolved, current) => {
    const state = stateOf(approvalRequested, resolved);
    // Even where the answer is wrong in other ways: what was decided is what its sender needs to know.
    for (const over of [{}, { args_hash: "wrong" }]) {
      const [event] = respond(state, { ...allow, ...over }, { now: EXPIRES_AT + 5 });
      expect(event?.payload).toMatchObject({ code: "already_resolved", current });
    }
  });

  it.each([
    ["made and judged in time", { at: EXPIRES_AT - 1, now: EXPIRES_AT }, "stands"],
    ["made in its last millisecond, judged later", { at: EXPIRES_AT, now: 9_999 }, "stands"],
    ["made in time, judged an hour later", { at: 1, now: 3_600_000 }, "stands"],
    ["made a millisecond late", { at: EXPIRES_AT + 1, now: EXPIRES_AT + 2 }, "expired"],
    ["not dated, and judged late", { at: 0, now: EXPIRES_AT + 1 }, "expired"],
    ["not dated, and judged in time", { at: 0, now: EXPIRES_AT }, "stands"],
    ["dated by a clock that is ahead", { at: 99_999, now: EXPIRES_AT }, "stands"],
  ])("[APR4][C32] an answer %s: %s", (_, times, what) => {
    const events = respond(open, allow, times);
    if (what === "stands") {
      expect(events.map(inShort)).toEqual(["approval.resolved"]);
      expect(events[0]?.payload).toMatchObject({ decision: "allow" });
      return;
    }
    expect(events).toMatchObject([
      {
        type: "approval.resolved",
        step_id: "stp_1",
        payload: { approval_id: "apr_1", decision: "expired" },
      },
      {
        type: "command.rejected",
        reply_to: "cmd_1",
        payload: { code: "already_resolved", current: { decision: "expired", default: "deny" } },
      },
    ]);
    expect(events[0]).not.toHaveProperty("reply_to");
    expect(events[0]?.payload).not.toHaveProperty("by");
  });
});

describe("input.respond", () => {
  const open = stateOf(inputRequested);
  const say = { input_id: "inp_1", content: "Ann" };

  it("[REQ2] answers the request, once", () => {
    expect(judged(open, "input.respond", say)).toEqual([
      {
        type: "input.received",
        reply_to: "cmd_1",
        reply_by: "ann",
        payload: { input_id: "inp_1", content: "Ann", by: "ann" },
      },
    ]);
    const received = stateOf(inputRequested, {
      type: "input.received",
      payload: { input_id: "inp_1", content: "Bob", by: "bob" },
    });
    expect(judged(received, "input.respond", say)[0]?.payload).toMatchObject({
      code: "already_resolved",
      current: { input_id: "inp_1", by: "bob" },
    });
  });

  it("[REQ2] what nobody asked for is not found", () => {
    const [event] = judged(open, "input.respond", { ...say, input_id: "inp_2" });
    expect(event && inShort(event)).toBe("not_found");
  });

  it("[INP2] what the agent's parser refuses is invalid, with its words", () => {
    const check: InputCheck = (id, content) => (content === "Ann" ? undefined : `${id}: no name`);
    const [bad] = judged(open, "input.respond", { ...say, content: 5 }, { check });
    expect(bad?.payload).toMatchObject({
      code: "invalid",
      message: "payload.content: inp_1: no name",
      current: { input_id: "inp_1", status: "open" },
    });
    expect(judged(open, "input.respond", say, { check }).map(inShort)).toEqual(["input.received"]);
  });
});

// By name: every state that a call can be in. The claim of `claimed` is made at ts 4.
const LAPSES_AT = 4 + LEASE_MS;
const CALLS = {
  pending: [created("tc_1")],
  claimed: [created("tc_1"), claimed("tc_1")],
  freed: [created("tc_1"), claimed("tc_1"), pending("tc_1")],
  completed: [created("tc_1"), completed("tc_1")],
  failed: [created("tc_1"), failed("tc_1")],
  "worker's": [created("tc_1", "worker")],
  "worker's, running": [
    created("tc_1", "worker"),
    { type: "tool_call.status", payload: { tool_call_id: "tc_1", status: "running" } },
  ],
  "worker's, done": [created("tc_1", "worker"), completed("tc_1")],
  "nobody's": [created("tc_2")],
} as const satisfies Record<string, readonly NewEvent[]>;
type CallCase = keyof typeof CALLS;

const LIVE = { at: LAPSES_AT, now: 99_999 };
const LAPSED = { at: LAPSES_AT + 1, now: 99_999 };

describe("tool_call.claim", () => {
  const claim = { tool_call_id: "tc_1", claim_id: "cl_ann" };

  it.each<[CallCase, string, string, Over, string]>([
    ["pending", "cl_ann", "ann", {}, "tool_call.status"],
    ["claimed", "cl_ann", "ann", LIVE, "tool_call.status"],
    ["claimed", "cl_ann", "ann", LAPSED, "tool_call.status"],
    ["claimed", "cl_ann", "bob", LIVE, "not_allowed"],
    ["claimed", "cl_bob", "ann", LIVE, "not_allowed"],
    ["claimed", "cl_bob", "bob", LIVE, "not_allowed"],
    ["claimed", "cl_bob", "bob", LAPSED, "tool_call.status"],
    ["freed", "cl_bob", "bob", LIVE, "tool_call.status"],
    ["completed", "cl_ann", "ann", {}, "already_resolved"],
    ["failed", "cl_ann", "ann", {}, "already_resolved"],
    ["worker's", "cl_ann", "ann", {}, "not_allowed"],
    ["worker's, running", "cl_ann", "ann", {}, "not_allowed"],
    ["worker's, done", "cl_ann", "ann", {}, "not_allowed"],
    ["nobody's", "cl_ann", "ann", {}, "not_found"],
  ])("[CLM1] a %s call, with %s of %s, %o: %s", (of, claim_id, user, over, verdict) => {
    const state = stateOf(...CALLS[of]);
    const events = judged(state, "tool_call.claim", { ...claim, claim_id }, { ...over, user });
    expect(events.map(inShort)).toEqual([verdict]);
    if (verdict !== "tool_call.status") {
      expect(events[0]?.payload).toMatchObject(
        verdict === "not_found" ? {} : { current: { tool_call_id: "tc_1" } },
      );
      return;
    }
    expect(events[0]).toEqual({
      type: "tool_call.status",
      step_id: "stp_1",
      reply_to: "cmd_1",
      reply_by: user,
      payload: { tool_call_id: "tc_1", status: "claimed", claim_id, lease_ms: 30_000, by: user },
    });
  });

  it("[CLM1] names its own lease, and one that is held elsewhere is told until when", () => {
    const free = stateOf(...CALLS.pending);
    const [event] = judged(free, "tool_call.claim", { ...claim, lease_ms: 5_000 });
    expect(event?.payload).toMatchObject({ lease_ms: 5_000 });
    const held = stateOf(...CALLS.claimed);
    const [no] = judged(held, "tool_call.claim", claim, { user: "bob" });
    expect(no?.payload).toMatchObject({
      current: { tool_call_id: "tc_1", status: "claimed", expires_at: LAPSES_AT },
    });
  });
});

describe("tool_result.report", () => {
  it.each<[CallCase, string | undefined, string, Over, string]>([
    ["pending", undefined, "ann", {}, "tool_call.completed"],
    ["pending", "cl_ann", "ann", {}, "stale"],
    ["claimed", "cl_ann", "ann", LIVE, "tool_call.completed"],
    ["claimed", "cl_ann", "ann", LAPSED, "stale"],
    ["claimed", "cl_ann", "bob", LIVE, "stale"],
    ["claimed", "cl_bob", "bob", LIVE, "stale"],
    ["claimed", undefined, "ann", LIVE, "not_allowed"],
    ["claimed", undefined, "bob", LAPSED, "tool_call.completed"],
    ["freed", "cl_ann", "ann", LIVE, "stale"],
    ["freed", undefined, "bob", {}, "tool_call.completed"],
    ["completed", undefined, "ann", {}, "already_resolved"],
    ["completed", "cl_ann", "ann", {}, "already_resolved"],
    ["failed", undefined, "ann", {}, "already_resolved"],
    ["worker's", undefined, "ann", {}, "not_allowed"],
    ["worker's, running", undefined, "ann", {}, "not_allowed"],
    ["worker's, done", undefined, "ann", {}, "not_allowed"],
    ["nobody's", undefined, "ann", {}, "not_found"],
  ])(
    "[CLM3][C32] of a %s call, with claim %s of %s, %o: %s",
    (of, claim_id, user, over, verdict) => {
      const report = {
        tool_call_id: "tc_1",
        result: { ok: 1 },
        ...(claim_id === undefined ? {} : { claim_id }),
      };
      const state = stateOf(...CALLS[of]);
      // Alone, and as the only one of several: the same verdict.
      for (const payload of [report, { results: [report] }]) {
        const events = judged(state, "tool_result.report", payload, { ...over, user });
        expect(events.map(inShort)).toEqual([verdict]);
        expect(events[0]).toMatchObject({ reply_to: "cmd_1", reply_by: user });
        if (verdict === "tool_call.completed") {
          expect(events[0]).toMatchObject({
            step_id: "stp_1",
            payload: { tool_call_id: "tc_1", result: { ok: 1 } },
          });
        } else {
          expect(events[0]?.payload).toMatchObject({ current: { tool_call_id: "tc_1" } });
        }
      }
    },
  );

  it("[CLM4] an error is an outcome", () => {
    const state = stateOf(created("tc_1"), created("tc_2"));
    const error = { code: "no_disk", message: "full", retryable: true };
    const results = [
      { tool_call_id: "tc_1", error },
      { tool_call_id: "tc_2", error: { message: "no code" } },
    ];
    expect(judged(state, "tool_result.report", { results }).map((event) => event.payload)).toEqual([
      { tool_call_id: "tc_1", error },
      {
        tool_call_id: "tc_2",
        error: { code: "tool_error", message: "no code", retryable: false },
      },
    ]);
  });

  it("[CLM4][C16] of several in one frame each is judged by what those before it have done", () => {
    const state = stateOf(created("tc_1"), created("tc_2"), created("tc_3"), completed("tc_3"));
    const results = [
      { tool_call_id: "tc_2", result: "first" },
      { tool_call_id: "tc_1", error: { message: "broken" } },
      { tool_call_id: "tc_2", result: "again" },
      { tool_call_id: "tc_1", result: "mended" },
      { tool_call_id: "tc_3", result: "late" },
      { tool_call_id: "tc_4", result: "of nothing" },
    ];
    const events = judged(state, "tool_result.report", { results });
    expect(events.map(inShort)).toEqual([
      "tool_call.completed",
      "tool_call.failed",
      "already_resolved",
      "already_resolved",
      "already_resolved",
      "not_found",
    ]);
    expect(events.every((event) => event.reply_to === "cmd_1")).toBe(true);
    expect(events[2]?.payload).toMatchObject({
      current: { tool_call_id: "tc_2", status: "completed" },
    });
    expect(events[3]?.payload).toMatchObject({
      current: { tool_call_id: "tc_1", status: "failed" },
    });
  });

  it("[REQ2] an answer of nobody in particular is still a legal event", () => {
    const [event] = judged(
      stateOf(created("tc_1")),
      "tool_result.report",
      { tool_call_id: "tc_1", result: null },
      { user: "" },
    );
    expect(event).toMatchObject({ reply_by: "unknown", payload: { result: null } });
  });
});
