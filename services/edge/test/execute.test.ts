import { type CommandOf, initialRunState } from "@throughline/protocol";
import type { LogMessage } from "@throughline/broker";
import { describe, expect, test } from "vitest";
import { execute } from "../src/commands/execute.ts";
import type { CommandServices } from "../src/commands/services.ts";
import { type KnownSession, SessionRecords } from "../src/commands/sessions.ts";
import { FakeLog } from "./fake-log.ts";

const ANN = { tenant: "t", user: "ann" };
const RECORD: KnownSession = { tenant: "t", owner: "ann", members: {}, created_at: 1 };
const cancel = (run_id: string): CommandOf<"run.cancel"> => ({
  type: "run.cancel",
  id: "c1",
  session_id: "s",
  run_id,
  payload: {},
});

function services(over: Partial<CommandServices> = {}): {
  services: CommandServices;
  published: string[];
  logged: object[];
} {
  const published: string[] = [];
  const logged: object[] = [];
  const log = (fields: object): void => void logged.push(fields);
  return {
    published,
    logged,
    services: {
      events: new FakeEvents(),
      commands: {
        publish: ({ ref }) => {
          published.push(ref.run);
          return Promise.resolve({ outcome: "stored", streamSeq: 1 });
        },
        find: () => Promise.resolve(undefined),
      },
      sessions: new SessionRecords({ get: () => Promise.resolve(RECORD) }, () => 0),
      creator: { create: () => Promise.reject(new Error("not here")) },
      memberships: {
        add: () => Promise.reject(new Error("not here")),
        remove: () => Promise.reject(new Error("not here")),
      },
      runIndex: { put: () => Promise.resolve() },
      states: { current: () => Promise.resolve(undefined) },
      offload: (_ref, value) => Promise.resolve(value),
      log: { info: log, warn: log, error: log },
      wallClock: () => 1,
      wait: () => Promise.resolve(),
      deadlineMs: 1_000,
      ...over,
    },
  };
}

class FakeEvents {
  readonly log: FakeLog = new FakeLog();

  start(): never {
    throw new Error("nothing is started here");
  }

  last(
    filter: Parameters<FakeLog["last"]>[0],
    from: "leader" | "replica",
  ): Promise<LogMessage | undefined> {
    return this.log.last(filter, from);
  }
}

describe("carrying out a command", () => {
  test("[EXEC7] a run that begins while it is looked for has not ended", async () => {
    const state = { ...initialRunState("r"), status: "queued", seq: 1 } as const;
    const begun = { state, streamSeq: 1, epoch: "e" };
    const events = new FakeEvents();
    const { services: s, published } = services({
      events,
      states: {
        current: () => {
          events.log.append("r", 1);
          return Promise.resolve(begun);
        },
      },
    });
    expect(await execute(s, ANN, cancel("r"))).toMatchObject({ ok: true, kind: "stored" });
    expect(published).toEqual(["r"]);
  });

  test("[SUB3] a run that a replica does not have is asked of the leader before it is not found", async () => {
    const events = new FakeEvents();
    events.log.append("r", 1);
    events.log.replicaLag = 1;
    const { services: s, published } = services({ events });
    expect(await execute(s, ANN, cancel("r"))).toMatchObject({ ok: true, run: "r" });
    expect(await execute(s, ANN, cancel("other"))).toMatchObject({ ok: false, code: "not_found" });
    expect(published).toEqual(["r"]);
  });

  test("[EXEC5] a run of which only the last state is left has ended", async () => {
    const at = { state: initialRunState("r"), streamSeq: 1, epoch: "e" };
    const { services: s } = services({ states: { current: () => Promise.resolve(at) } });
    expect(await execute(s, ANN, cancel("r"))).toMatchObject({ ok: false, code: "run_ended" });
  });

  test("[EXEC4] an unknown outcome is `unavailable`, a fault nobody foresaw `internal`, and logged", async () => {
    const events = new FakeEvents();
    events.log.append("r", 1);
    const away = Object.assign(new Error("no answer"), { name: "BrokerUnavailable" });
    const failing = (error: Error): CommandServices["commands"] => ({
      publish: () => Promise.reject(error),
      find: () => Promise.reject(error),
    });
    const first = services({ events, commands: failing(away) });
    expect(await execute(first.services, ANN, cancel("r"))).toMatchObject({
      code: "unavailable",
      retryAfterMs: 1_000,
    });
    expect(first.logged).toEqual([]);
    const second = services({ events, commands: failing(new TypeError("a bug with a secret")) });
    const outcome = await execute(second.services, ANN, cancel("r"));
    expect(outcome).toMatchObject({ code: "internal" });
    expect(JSON.stringify(outcome)).not.toContain("secret");
    expect(second.logged).toHaveLength(1);
  });
});

describe("starting a run", () => {
  const start: CommandOf<"run.start"> = {
    type: "run.start",
    id: "c1",
    session_id: "s",
    payload: { agent: "a", input: 1 },
  };
  const stored = { start: () => Promise.resolve({ outcome: "stored", streamSeq: 1, epoch: "e" }) };

  test("[EXEC12] an index that fails or hangs holds up no start", async () => {
    const events = Object.assign(
      new FakeEvents(),
      stored as Pick<CommandServices["events"], "start">,
    );
    const failing = services({ events, runIndex: { put: () => Promise.reject(new Error("no")) } });
    expect(await execute(failing.services, ANN, start)).toMatchObject({ ok: true });
    expect(failing.logged).toHaveLength(1);
    const hanging = services({ events, runIndex: { put: () => new Promise(() => undefined) } });
    expect(await execute(hanging.services, ANN, start)).toMatchObject({ ok: true });
  });

  test("[EXEC10] [EXEC4] a large input that cannot be stored starts nothing", async () => {
    const away = Object.assign(new Error("no answer"), { name: "BrokerUnavailable" });
    const { services: s } = services({ offload: () => Promise.reject(away) });
    expect(await execute(s, ANN, start)).toMatchObject({ ok: false, code: "unavailable" });
  });
});

describe("session records", () => {
  test("[SUB3] are asked for once at a time, kept for moments, and a miss is never kept", async () => {
    let now = 0;
    let asked = 0;
    let record: KnownSession | undefined;
    const get = (): Promise<KnownSession | undefined> => {
      asked += 1;
      return Promise.resolve(record);
    };
    const records = new SessionRecords({ get }, () => now);
    const ref = { tenant: "t", session: "s" };
    expect(await Promise.all([records.get(ref), records.get(ref)])).toEqual([undefined, undefined]);
    expect(asked).toBe(1);
    record = RECORD;
    expect(await records.get(ref)).toBe(RECORD);
    expect(await records.get(ref)).toBe(RECORD);
    expect(asked).toBe(2);
    now = 6_000;
    await records.get(ref);
    expect(asked).toBe(3);
  });
});
