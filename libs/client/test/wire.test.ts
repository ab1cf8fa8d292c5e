/** A subscription's states, against a model of a server. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type WireEvent,
  type WireState,
  initialWire,
  wireTransition,
} from "../src/subscription/wire.ts";

/** What a server does with the frames, in the order in which they were sent; frames of a lost connection are gone. */
class ServerModel {
  holds = false;
  pending: ("subscribe" | "unsubscribe")[] = [];
  overlaps = 0;

  /** Answers the oldest frame. */
  answer(refuse: boolean): WireEvent | undefined {
    const frame = this.pending.shift();
    if (frame === undefined) return undefined;
    if (frame === "unsubscribe") {
      this.holds = false;
      return "unsubscribed";
    }
    if (this.holds) this.overlaps += 1;
    if (refuse) return "refused";
    this.holds = true;
    return "subscribed";
  }
}

type Act =
  | "want"
  | "rest"
  | "again"
  | "again_later"
  | "cut"
  | "connect"
  | "answer"
  | "refuse"
  | "end"
  | "timer";
const ACTS: Act[] = [
  "want",
  "rest",
  "again",
  "again_later",
  "cut",
  "connect",
  "answer",
  "refuse",
  "end",
  "timer",
];

class Run {
  state: WireState = initialWire;
  up = false;
  timer = false;
  wanted = false;
  released = 0;
  readonly server = new ServerModel();

  on(event: WireEvent): void {
    const step = wireTransition(this.state, event, this.up);
    this.state = step.state;
    for (const effect of step.effects) {
      if (effect === "send_subscribe") this.server.pending.push("subscribe");
      if (effect === "send_unsubscribe") this.server.pending.push("unsubscribe");
      if (effect === "start_timer") {
        expect(this.timer).toBe(false);
        this.timer = true;
      }
      if (effect === "stop_timer") this.timer = false;
      if (effect === "released") this.released += 1;
    }
  }

  act(act: Act): void {
    switch (act) {
      case "want":
      case "again":
      case "again_later":
        this.wanted = true;
        return this.on(act);
      case "rest":
        this.wanted = false;
        return this.on(act);
      case "cut":
        if (!this.up) return;
        this.up = false;
        this.server.pending = [];
        this.server.holds = false;
        return this.on("down");
      case "connect":
        if (this.up) return;
        this.up = true;
        return this.on("up");
      case "answer":
      case "refuse": {
        const answer = this.up ? this.server.answer(act === "refuse") : undefined;
        if (answer !== undefined) this.on(answer);
        return;
      }
      case "end":
        // The server ends it by itself, e.g. for a client that is too slow.
        if (!this.up || !this.server.holds || this.server.pending.length > 0) return;
        this.server.holds = false;
        return this.on("unsubscribed");
      case "timer":
        if (!this.timer) return;
        this.timer = false;
        return this.on("timer");
    }
  }

  /** Until nothing is under way. */
  settle(): void {
    this.act("connect");
    for (let n = 0; n < 10; n++) {
      this.act("answer");
      this.act("timer");
    }
  }
}

describe("[CLI35] whatever happens in whatever order", () => {
  test("the server is never asked for a second one, and both sides agree in the end", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...ACTS), { maxLength: 40 }), (acts) => {
        const run = new Run();
        for (const act of acts) {
          run.act(act);
          // Events are taken in `on` only, and then the server does send them.
          if (run.state.name === "on") expect(run.server.holds).toBe(true);
        }
        run.settle();
        expect(run.server.overlaps).toBe(0);
        expect([run.state.name, run.server.holds]).toEqual(
          run.wanted ? ["on", true] : ["resting", false],
        );
        expect(run.timer).toBe(false);
      }),
      { numRuns: 3_000 },
    );
  });
});

describe("steps", () => {
  const walk = (...acts: Act[]): Run => {
    const run = new Run();
    for (const act of acts) run.act(act);
    return run;
  };

  test("[CLI35] asked anew, it unsubscribes and waits for the answer first", () => {
    const run = walk("connect", "want", "answer", "again");
    expect(run.server.pending).toEqual(["unsubscribe"]);
    run.act("answer");
    expect(run.server.pending).toEqual(["subscribe"]);
  });

  test("[CLI32] asked anew later, it waits for the timer", () => {
    const run = walk("connect", "want", "answer", "again_later", "answer");
    expect([run.state.name, run.timer]).toEqual(["pausing", true]);
    run.act("timer");
    expect(run.server.pending).toEqual(["subscribe"]);
  });

  test("[CLI41] refused for now, it asks again after a while; for good, it lets go", () => {
    const run = walk("connect", "want", "refuse");
    expect([run.state.name, run.timer]).toEqual(["pausing", true]);
    const denied = walk("connect", "want");
    denied.on("denied");
    expect([denied.state.name, denied.released]).toEqual(["resting", 1]);
  });
});
