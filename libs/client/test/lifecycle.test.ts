/** The connection's states, without sockets and without time. */
import { describe, expect, test } from "vitest";
import { backoff } from "../src/connection/backoff.ts";
import {
  type ConnectionEvent,
  type ConnectionState,
  type LifecycleOptions,
  type Step,
  transition,
} from "../src/connection/lifecycle.ts";

const OPTIONS: LifecycleOptions = { baseMs: 500, capMs: 30_000, urls: 3, fixedToken: false };

/** Drives a connection through events, each at a time of its own. */
class Life {
  state: ConnectionState = { name: "idle" };
  effects: readonly string[] = [];
  now = 0;
  random = 0;
  readonly options: LifecycleOptions;

  constructor(options: Partial<LifecycleOptions> = {}) {
    this.options = { ...OPTIONS, ...options };
  }

  on(event: ConnectionEvent, now: number = this.now): this {
    this.now = now;
    const { random, options } = this;
    const step: Step = transition(this.state, event, { now, random, options });
    this.state = step.state;
    this.effects = step.effects;
    return this;
  }

  open(now: number = this.now): this {
    return this.on({ type: "start" }, now)
      .on({ type: "token" })
      .on({ type: "welcome", beatMs: 20_000 });
  }

  lost(code: number, now: number = this.now): this {
    return this.on({ type: "lost", code, reason: "" }, now);
  }

  /** Until the next attempt has a welcome. */
  again(): this {
    return this.on({ type: "due", heardAt: 0 }, this.due)
      .on({ type: "token" })
      .on({ type: "welcome", beatMs: 20_000 });
  }

  get due(): number {
    return "due" in this.state ? this.state.due : Number.NaN;
  }
}

const ALL_EVENTS: ConnectionEvent[] = [
  { type: "start" },
  { type: "token" },
  { type: "token_failed", error: new Error("none") },
  { type: "welcome", beatMs: 20_000 },
  { type: "goaway", afterMs: 100 },
  { type: "lost", code: 1006, reason: "" },
  { type: "unusable", error: new Error("never") },
  { type: "abandon" },
  { type: "due", heardAt: 0 },
  { type: "stop" },
];

describe("states", () => {
  test("[CLI1] the way from idle to open asks for a token, then a socket, then tells that it is up", () => {
    const life = new Life();
    expect(life.on({ type: "start" })).toMatchObject({
      state: { name: "authorising" },
      effects: ["fetch_token"],
    });
    expect(life.on({ type: "token" })).toMatchObject({
      state: { name: "connecting" },
      effects: ["open_socket"],
    });
    expect(life.on({ type: "welcome", beatMs: 20_000 })).toMatchObject({
      state: { name: "open" },
      effects: ["up"],
    });
  });

  test("[CLI1] closed is final, whatever comes", () => {
    const life = new Life().open().on({ type: "stop" });
    expect(life.effects).toEqual(["close_socket", "down", "ended"]);
    for (const event of ALL_EVENTS) {
      life.on(event);
      expect([event.type, life.state, life.effects]).toEqual([
        event.type,
        { name: "closed", cause: { kind: "stopped" } },
        [],
      ]);
    }
  });

  test("[CLI1] in every reachable state every event is answered, and only an open one goes down", () => {
    const states = new Map<string, ConnectionState>();
    const visit = (state: ConnectionState): void => {
      if (states.has(state.name)) return;
      states.set(state.name, state);
      for (const event of ALL_EVENTS) {
        const step = transition(state, event, { now: 1_000, random: 0.5, options: OPTIONS });
        const leftOpen = state.name === "open" && step.state.name !== "open";
        expect(step.effects.includes("down")).toBe(leftOpen);
        visit(step.state);
      }
    };
    visit({ name: "idle" });
    expect([...states.keys()].toSorted()).toEqual(
      ["authorising", "closed", "connecting", "idle", "open", "waiting"].toSorted(),
    );
  });
});

describe("waiting", () => {
  test("[CLI2] the ceiling doubles with each failure up to the cap, and the wait starts at nothing", () => {
    const most = (attempt: number): number => backoff("now", attempt, 1, OPTIONS);
    expect([0, 1, 2, 3].map(most)).toEqual([500, 1_000, 2_000, 4_000]);
    expect(most(40)).toBe(30_000);
    expect(backoff("now", 5, 0, OPTIONS)).toBe(0);
  });

  test("[CLI2] an overloaded server is spared the short waits", () => {
    expect(backoff("backoff", 0, 0, OPTIONS)).toBe(500);
    expect(backoff("backoff", 0, 1, OPTIONS)).toBe(4_000);
    expect(backoff("backoff", 40, 1, OPTIONS)).toBe(30_000);
  });

  test("[CLI2] 1,000 clients that lose a node at once come back spread over the whole ceiling", () => {
    const waits = Array.from({ length: 1_000 }, (_, n) => {
      const life = new Life().open();
      life.random = n / 1_000;
      return life.lost(1006, 60_000).due - 60_000;
    });
    const perTenth = Array.from(
      { length: 10 },
      (_, tenth) => waits.filter((w) => Math.floor(w / 50) === tenth).length,
    );
    expect(perTenth).toEqual(Array.from({ length: 10 }, () => 100));
  });

  test("[CLI3] a server that accepts and closes at once is met ever more slowly", () => {
    const life = new Life();
    life.random = 1;
    life.open();
    const waits = [0, 1, 2, 3].map(() => {
      const wait = life.lost(1006).due - life.now;
      life.again();
      return wait;
    });
    expect(waits).toEqual([500, 1_000, 2_000, 4_000]);
    expect(life.lost(1006, life.now + 5_000).due - life.now).toBe(500);
  });
});

describe("close codes", () => {
  test.each([1000, 1008, 4400, 4403])("[CLI4] %i ends the client", (code) => {
    expect(new Life().open().lost(code)).toMatchObject({
      state: { name: "closed", cause: { kind: "refused", code } },
      effects: ["down", "ended"],
    });
  });

  test.each([1001, 1005, 1006, 1012, 4408, 4410, 4999])("[CLI4] %i reconnects", (code) => {
    expect(new Life().open().lost(code)).toMatchObject({
      state: { name: "waiting", after: { kind: "lost", code } },
      effects: ["down"],
    });
  });

  test.each([1009, 1013, 4429])("[CLI4] %i backs off", (code) => {
    const life = new Life().open();
    expect(life.lost(code, 60_000).due).toBe(60_500);
  });

  test("[CLI4] 4401 asks for the token again, and ends where the token is fixed", () => {
    const life = new Life().open().lost(4401);
    expect(life.on({ type: "due", heardAt: 0 }, life.due).effects).toEqual(["fetch_token"]);
    expect(new Life({ fixedToken: true }).open().lost(4401).state).toMatchObject({
      name: "closed",
      cause: { kind: "refused", code: 4401 },
    });
  });

  test("[CLI5] each loss goes on to the next URL, and round", () => {
    const life = new Life().open();
    const tried = [0, 1, 2, 3].map(() => {
      const url = "url" in life.state ? life.state.url : -1;
      life.lost(1006).again();
      return url;
    });
    expect(tried).toEqual([0, 1, 2, 0]);
  });
});

describe("goaway", () => {
  test("[CLI6] leaves when the delay is over", () => {
    const life = new Life().open().on({ type: "goaway", afterMs: 3_000 }, 1_000);
    expect(life.due).toBe(4_000);
    expect(life.on({ type: "due", heardAt: 900 }, 4_000)).toMatchObject({
      state: { name: "waiting", after: { kind: "goaway" }, due: 4_000 },
      effects: ["close_socket", "down"],
    });
  });

  test("[CLI6] closed before, it waits for the rest of the delay", () => {
    const life = new Life().open().on({ type: "goaway", afterMs: 3_000 }, 1_000);
    expect(life.lost(1012, 1_500).due).toBe(4_000);
  });

  test("[CLI6] goes on sending heartbeats until then", () => {
    const life = new Life().open().on({ type: "goaway", afterMs: 60_000 }, 1_000);
    expect(life.on({ type: "due", heardAt: 1_000 }, 20_000).effects).toEqual(["send_heartbeat"]);
    expect(life.on({ type: "due", heardAt: 20_001 }, 40_000).due).toBe(60_000);
    expect(life.on({ type: "due", heardAt: 40_001 }, 60_000).due).toBe(61_000);
  });
});

describe("silence", () => {
  test("[CLI7] two heartbeats without any answer, and the socket is given up", () => {
    const life = new Life().open();
    expect(life.on({ type: "due", heardAt: 0 }, 20_000).effects).toEqual(["send_heartbeat"]);
    expect(life.on({ type: "due", heardAt: 0 }, 40_000).effects).toEqual(["send_heartbeat"]);
    expect(life.on({ type: "due", heardAt: 0 }, 60_000)).toMatchObject({
      state: { name: "waiting", after: { kind: "silence" } },
      effects: ["close_socket", "down"],
    });
  });

  test("[CLI7] any frame in between counts as an answer", () => {
    const life = new Life().open();
    for (let beat = 1; beat <= 10; beat++) {
      // Every second heartbeat is answered.
      const heardAt = beat % 2 === 0 ? life.now + 5 : life.now - 15_000;
      life.on({ type: "due", heardAt }, beat * 20_000);
    }
    expect(life.state.name).toBe("open");
  });

  test("[CLI8] no welcome within 10 s: the next URL", () => {
    const life = new Life().on({ type: "start" }).on({ type: "token" });
    expect(life.due).toBe(10_000);
    expect(life.on({ type: "due", heardAt: 0 }, 10_000)).toMatchObject({
      state: { name: "waiting", url: 1, attempt: 1 },
      effects: ["close_socket"],
    });
  });

  test("[CLI8] no token within 10 s, or a failure of its source, is a failed attempt", () => {
    const life = new Life().on({ type: "start" }).on({ type: "due", heardAt: 0 }, 10_000);
    expect(life.state).toMatchObject({ name: "waiting", after: { kind: "no_token" }, attempt: 1 });
    const error = new Error("the identity provider is down");
    life.on({ type: "due", heardAt: 0 }, life.due).on({ type: "token_failed", error });
    expect(life.state).toMatchObject({ name: "waiting", after: { error }, attempt: 2 });
  });

  test("[CLI9] abandoned by its owner, an open connection is replaced", () => {
    expect(new Life().open().on({ type: "abandon" })).toMatchObject({
      state: { name: "waiting", after: { kind: "silence" } },
      effects: ["close_socket", "down"],
    });
  });
});
