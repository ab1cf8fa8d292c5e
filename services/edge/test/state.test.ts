import { type Command, MAX_WINDOW } from "@throughline/protocol";
import { describe, expect, test } from "vitest";
import type { ConnectionState, Effect, Happening } from "../src/session/life.ts";
import { MAX_STARTING } from "../src/session/followed.ts";
import { MAX_PENDING, MAX_PENDING_BYTES, MAX_STRIKES, next, OPENED } from "../src/session/state.ts";

function run(
  state: ConnectionState,
  ...happenings: Happening[]
): { state: ConnectionState; effects: Effect[] } {
  const effects: Effect[] = [];
  for (const happening of happenings) {
    const step = next(state, happening);
    state = step.state;
    effects.push(...step.effects);
  }
  return { state, effects };
}

const command = (fields: object): Happening => ({
  kind: "command",
  command: fields as Command,
  bytes: 100,
});
const subscribe = (id: string, session: string, run_id?: string): Happening =>
  command({
    type: "subscribe",
    id,
    session_id: session,
    ...(run_id ? { run_id } : {}),
    payload: {},
  });
const unreadable: Happening = {
  kind: "unreadable",
  frame: { code: "malformed", message: "no JSON" },
};
const sent = (effects: Effect[]): object[] =>
  effects.flatMap((e) => (e.do === "send" ? [e.frame] : []));

describe("a connection's state", () => {
  test("[SUB2] a run and its session overlap, whichever came first; other runs do not", () => {
    const { effects } = run(
      OPENED,
      subscribe("c1", "s1", "r1"),
      subscribe("c2", "s1", "r2"),
      subscribe("c3", "s1"),
      subscribe("c4", "s1", "r1"),
      subscribe("c5", "s2"),
      subscribe("c6", "s2", "r1"),
    );
    expect(effects.filter((e) => e.do === "attach").map((e) => e.id)).toEqual([
      "sub_1",
      "sub_2",
      "sub_3",
    ]);
    expect(sent(effects)).toMatchObject([
      { type: "error", code: "already_subscribed", id: "c3" },
      { type: "error", code: "already_subscribed", id: "c4" },
      { type: "error", code: "already_subscribed", id: "c6" },
    ]);
  });

  test("[SUB2] 256 subscriptions, not one more; a freed place can be taken again", () => {
    const many = Array.from({ length: 257 }, (_, i) => subscribe(`c${i}`, "s", `r${i}`));
    const full = run(OPENED, ...many);
    expect(full.effects.filter((e) => e.do === "attach")).toHaveLength(256);
    expect(sent(full.effects)).toMatchObject([{ code: "too_many_subscriptions", id: "c256" }]);
    const again = run(
      full.state,
      command({ type: "unsubscribe", id: "u", payload: { subscription_id: "sub_7" } }),
      subscribe("c", "s", "more"),
    );
    expect(again.effects.map((e) => e.do)).toEqual(["detach", "send", "attach"]);
    expect(sent(again.effects)).toEqual([
      { type: "unsubscribed", id: "u", subscription_id: "sub_7", reason: "asked" },
    ]);
  });

  test("[SUB2] a refused subscription frees its place; what is not there cannot be left", () => {
    const frame = { type: "error", code: "not_found", message: "", id: "c1" } as const;
    const { effects } = run(
      OPENED,
      subscribe("c1", "s", "r"),
      { kind: "refused", id: "sub_1", frame },
      command({ type: "unsubscribe", id: "u", payload: { subscription_id: "sub_1" } }),
      subscribe("c2", "s", "r"),
    );
    expect(sent(effects)).toMatchObject([
      { code: "not_found", id: "c1" },
      { code: "not_found", id: "u" },
    ]);
    expect(effects.at(-1)).toMatchObject({ do: "attach", id: "sub_2" });
  });

  test("[CON3] repeated unreadable frames close with 4400; commands in between forgive, heartbeats do not", () => {
    const unsubscribe = command({
      type: "unsubscribe",
      id: "u",
      payload: { subscription_id: "sub_9" },
    });
    const forgiven = Array.from({ length: 40 }, () => [unreadable, unsubscribe]).flat();
    expect(run(OPENED, ...forgiven).state.phase).toBe("open");
    const heartbeat = command({ type: "heartbeat", id: "h", payload: { ts: 1 } });
    const idle = Array.from({ length: 40 }, () => [unreadable, heartbeat]).flat();
    expect(run(OPENED, ...idle).state.phase).toBe("closed");
    const { state, effects } = run(
      OPENED,
      subscribe("c", "s"),
      ...Array<Happening>(MAX_STRIKES).fill(unreadable),
    );
    expect(state.phase).toBe("closed");
    expect(sent(effects)).toHaveLength(MAX_STRIKES);
    expect(effects.slice(-2)).toMatchObject([
      { do: "close", code: 4400 },
      { do: "detach", id: "sub_1" },
    ]);
  });

  test("[CON3] commands that can be read and are wrong get their errors and never close; nor do they forgive", () => {
    const wrong = (["invalid", "unknown_type"] as const).map((code): Happening => {
      return { kind: "unreadable", frame: { code, message: "no", id: "w" } };
    });
    const many = Array.from({ length: 40 }, () => wrong).flat();
    const { state, effects } = run(OPENED, ...many, subscribe("c", "s"));
    expect(state.phase).toBe("open");
    expect(sent(effects)).toHaveLength(80);
    expect(effects.at(-1)).toMatchObject({ do: "attach" });
    const between = Array.from({ length: MAX_STRIKES }, () => [unreadable, ...wrong]).flat();
    expect(run(OPENED, ...between).state.phase).toBe("closed");
  });

  test("[CON7] commands on their way are bounded; an answer makes room", () => {
    const start = (id: string): Happening =>
      command({ type: "run.start", id, session_id: "s", payload: {} });
    const full = run(OPENED, ...Array.from({ length: MAX_PENDING + 1 }, (_, i) => start(`c${i}`)));
    expect(full.effects.filter((e) => e.do === "execute")).toHaveLength(MAX_PENDING);
    expect(sent(full.effects)).toMatchObject([
      {
        type: "command.rejected",
        id: `c${MAX_PENDING}`,
        code: "rate_limited",
        retry_after_ms: 1_000,
      },
    ]);
    const frame = { type: "command.accepted", id: "c0", run_id: "r", duplicate: false } as const;
    const after = run(full.state, { kind: "answered", frame, bytes: 100 }, start("again"));
    expect(after.effects.map((e) => e.do)).toEqual(["send", "execute"]);
  });

  test("[RATE3] what waiting commands hold is bounded in bytes, too, and given back with each answer", () => {
    const large = (id: string): Happening => ({
      kind: "command",
      command: { type: "run.resume", id, session_id: "s", run_id: "r" } as Command,
      bytes: MAX_PENDING_BYTES / 4,
    });
    const full = run(OPENED, ...["a", "b", "c", "d"].map(large));
    expect(full.effects.map((e) => e.do)).toEqual(["execute", "execute", "execute", "execute"]);
    const refused = run(full.state, large("e"));
    expect(sent(refused.effects)).toMatchObject([
      { type: "command.rejected", id: "e", code: "rate_limited", retry_after_ms: 1_000 },
    ]);
    const frame = { type: "command.accepted", id: "a", run_id: "r", duplicate: false } as const;
    const bytes = MAX_PENDING_BYTES / 4;
    const after = run(refused.state, { kind: "answered", frame, bytes }, large("f"));
    expect(after.effects.map((e) => e.do)).toEqual(["send", "execute"]);
  });

  test("[RATE4] subscriptions given up as they begin are bounded until they are over", () => {
    const pair = (i: number): Happening[] => [
      subscribe(`s${i}`, "s"),
      command({ type: "unsubscribe", id: `u${i}`, payload: { subscription_id: `sub_${i + 1}` } }),
    ];
    const many = Array.from({ length: MAX_STARTING }, (_, i) => pair(i)).flat();
    const full = run(OPENED, ...many);
    expect(full.effects.filter((e) => e.do === "attach")).toHaveLength(MAX_STARTING);
    expect(sent(run(full.state, subscribe("more", "s")).effects)).toMatchObject([
      { type: "error", id: "more", code: "rate_limited", retry_after_ms: 1_000 },
    ]);
    const after = run(full.state, { kind: "begun" }, subscribe("again", "s"));
    expect(after.effects.map((e) => e.do)).toEqual(["attach"]);
  });

  test("[CRED1] the windows of a connection are bounded together", () => {
    const windowed = (id: string, run_id: string, window: number): Happening =>
      command({ type: "subscribe", id, session_id: "s", run_id, payload: { window } });
    const full = run(OPENED, windowed("a", "r1", MAX_WINDOW - 10), windowed("b", "r2", 10));
    expect(full.effects.map((e) => e.do)).toEqual(["attach", "attach"]);
    const { effects } = run(full.state, windowed("c", "r3", 1), subscribe("d", "s", "r4"));
    expect(effects.map((e) => e.do)).toEqual(["send", "attach"]);
    expect(sent(effects)).toMatchObject([{ type: "error", id: "c", code: "invalid" }]);
  });

  test("[CRED3] an ack of a subscription that never was is an error; of one that has ended, or without a window, it is nothing", () => {
    const ack = (id: string, subscription_id: string): Happening =>
      command({ type: "ack", id, payload: { subscription_id, cursor: "1-1-t" } });
    const { state } = run(
      OPENED,
      subscribe("c1", "s1"),
      command({ type: "subscribe", id: "c2", session_id: "s2", payload: { window: 5 } }),
      subscribe("c3", "s3"),
      command({ type: "unsubscribe", id: "c4", payload: { subscription_id: "sub_3" } }),
    );
    const { effects } = run(
      state,
      ack("a1", "sub_1"),
      ack("a2", "sub_2"),
      ack("a3", "sub_3"),
      ack("a4", "sub_4"),
      ack("a5", "sub_01"),
    );
    expect(effects).toMatchObject([
      { do: "acknowledge", command: { id: "a2" } },
      { do: "send", frame: { type: "error", code: "not_found", id: "a4" } },
      { do: "send", frame: { type: "error", code: "not_found", id: "a5" } },
    ]);
  });

  test("[CON5] nothing has an effect on a closed one", () => {
    const { state } = run(OPENED, subscribe("c", "s"), { kind: "gone" });
    const { effects } = run(
      state,
      subscribe("d", "s2"),
      unreadable,
      command({ type: "heartbeat", id: "h", payload: { ts: 1 } }),
      { kind: "goaway", reconnectAfterMs: 1, reason: "" },
      { kind: "ended", id: "sub_1", reason: "run_ended" },
      { kind: "close", code: 1012, reason: "" },
    );
    expect(effects).toEqual([]);
  });

  test("[LIFE3] told to go once, commands are still taken, then it is closed and all is detached", () => {
    const goaway: Happening = { kind: "goaway", reconnectAfterMs: 700, reason: "drain" };
    const { state, effects } = run(
      OPENED,
      subscribe("c", "s"),
      goaway,
      goaway,
      command({ type: "run.start", id: "r", session_id: "s", payload: {} }),
      { kind: "close", code: 1012, reason: "stopping" },
    );
    expect(sent(effects)).toEqual([{ type: "goaway", reconnect_after_ms: 700, reason: "drain" }]);
    expect(effects.map((e) => e.do)).toEqual(["attach", "send", "execute", "close", "detach"]);
    expect(state.phase).toBe("closed");
  });
});
