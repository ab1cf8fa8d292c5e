/** The state that handles show, as pure functions. */
import { type RunState, initialRunState } from "@throughline/protocol";
import { describe, expect, test } from "vitest";
import { runBook, sessionBook } from "../src/follow/state.ts";

const at = (seq: number): RunState => ({ ...initialRunState("a"), status: "running", seq });

describe("[CLI36] a snapshot", () => {
  test("sets the state, unless the one that is there is newer", () => {
    const run = runBook("a");
    expect(run.adopt(run.initial, "a", at(5)).seq).toBe(5);
    const newer = at(9);
    expect(run.adopt(newer, "a", at(5))).toBe(newer);
    const session = sessionBook("s");
    const first = session.adopt(session.initial, "a", at(5));
    expect(first.runs["a"]?.seq).toBe(5);
    expect(session.adopt(first, "a", at(4))).toBe(first);
    expect(session.adopt(first, "a", at(6)).runs["a"]?.seq).toBe(6);
  });
});

describe("[CLI39] a session's state", () => {
  test("is the same object where nothing changed", () => {
    const session = sessionBook("s");
    const state = session.adopt(session.initial, "a", at(5));
    const presence = {
      type: "presence",
      session_id: "s",
      ts: 1,
      payload: { user: "ann", status: "online", connections: 1 },
    } as const;
    expect(session.apply(state, presence)).toBe(state);
    const delta = {
      type: "model.delta",
      session_id: "s",
      run_id: "unheard-of",
      attempt: 1,
      ts: 1,
      payload: { message_id: "m", offset: 0, text: "x" },
    } as const;
    expect(session.apply(state, delta)).toBe(state);
  });
});
