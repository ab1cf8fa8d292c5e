/** Tools that the client SDK executes, against real workers and edges. */
import { type Client, type ClientOptions, type RunHandle, ToolError } from "@throughline/client";
import { createClient } from "@throughline/client/node";
import { eventually } from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Op, SCRIPTED } from "./script.ts";
import { startWorld, type World } from "./world.ts";

let world: World;
let urls: readonly string[];
beforeAll(async () => {
  world = await startWorld();
  const [a, b] = await Promise.all([world.edge(), world.edge(), world.worker()]);
  urls = [a.url, b.url];
});
afterAll(() => world.dispose());

const clients: Client[] = [];
afterEach(() => clients.splice(0).forEach((client) => client.close()));

function device(options: Pick<ClientOptions, "tools" | "storage"> = {}): Client {
  const client = createClient({ urls, token: "dev.acme.ann", ...options });
  clients.push(client);
  return client;
}

/** As a browser's, of one origin. */
function memory(): Storage {
  const items = new Map<string, string>();
  return {
    get length() {
      return items.size;
    },
    key: (n) => [...items.keys()][n] ?? null,
    getItem: (key) => items.get(key) ?? null,
    setItem: (key, value) => void items.set(key, value),
    removeItem: (key) => void items.delete(key),
    clear: () => items.clear(),
  };
}

const tools = (...calls: { name: string; args: unknown }[]): Op => ({ op: "tools", calls });

async function start(client: Client, ...ops: Op[]): Promise<RunHandle> {
  const session = await client.createSession();
  return client.start({ session, agent: SCRIPTED, input: { do: ops } });
}

/** Types of the run's events about calls, in their order. */
async function callEvents({ session_id, run_id }: RunHandle): Promise<string[]> {
  const log = await world.log(session_id, run_id);
  return log
    .filter(({ type }) => type.startsWith("tool_call."))
    .map((event) =>
      event.type === "tool_call.status" ? `${event.type} ${event.payload.status}` : event.type,
    );
}

const never = (): Promise<never> => new Promise(() => undefined);

describe("[CLI70] a client's tools", () => {
  test("go with the runs that it starts; calls are claimed, executed side by side, and reported each when it is ready", async () => {
    let letGo: (value: unknown) => void = () => undefined;
    const client = device({
      tools: {
        wait: { run: () => new Promise((resolve) => (letGo = resolve)) },
        fast: { description: "adds", run: (args) => ({ got: args }) },
        bad: {
          run: () => {
            throw new ToolError("no_such_file", "there is no a.txt");
          },
        },
      },
    });
    const run = await start(
      client,
      tools({ name: "wait", args: 1 }, { name: "fast", args: { n: 2 } }, { name: "bad", args: 3 }),
    );
    await eventually(
      () => run.state.tool_calls.filter(({ status }) => status !== "claimed").length === 2,
    );
    expect(run.state.tools.map(({ name }) => name)).toEqual(["wait", "fast", "bad"]);
    letGo("at last");
    await run.done;
    expect(run.state.tool_calls).toMatchObject([
      { name: "wait", status: "completed", result: "at last" },
      { name: "fast", status: "completed", result: { got: { n: 2 } } },
      { name: "bad", status: "failed", error: { code: "no_such_file", retryable: false } },
    ]);
  });

  test("what is no JSON, and what fits no frame, are the call's failure", async () => {
    const client = device({
      tools: { odd: { run: () => 1n }, huge: { run: () => "x".repeat(600_000) } },
    });
    const run = await start(client, tools({ name: "odd", args: 1 }, { name: "huge", args: 1 }));
    await run.done;
    expect(run.state.tool_calls).toMatchObject([
      { name: "odd", status: "failed", error: { code: "tool_error" } },
      { name: "huge", status: "failed", error: { code: "result_too_large" } },
    ]);
  });

  test("a claim is renewed for as long as the tool takes", async () => {
    let letGo: (value: unknown) => void = () => undefined;
    const client = device({
      tools: { long: { leaseMs: 1_000, run: () => new Promise((go) => (letGo = go)) } },
    });
    const run = await start(client, tools({ name: "long", args: 1 }));
    // Four renewals: without them the claim would have lapsed by then.
    await eventually(async () => (await callEvents(run)).length >= 6);
    letGo(1);
    await run.done;
    const events = await callEvents(run);
    expect(new Set(events.slice(1, -1))).toEqual(new Set(["tool_call.status claimed"]));
    expect(events.at(-1)).toBe("tool_call.completed");
  });
});

describe("[CLI71] once only", () => {
  test("of two tabs one executes each call, whoever started the run", async () => {
    const executed: string[] = [];
    const tab = (name: string): Client =>
      device({
        tools: {
          mark: {
            run: (args) => {
              executed.push(String(args));
              return name;
            },
          },
        },
      });
    const [a, b] = [tab("a"), tab("b")];
    const calls = Array.from({ length: 12 }, (_, n) => ({ name: "mark", args: n }));
    const session = await a.createSession();
    const other = b.follow({ session });
    // A second handle of one client on the same run is no second executor either.
    const own = a.follow({ session });
    const input = { do: calls.map((call) => tools(call)) };
    const run = await a.start({ session, agent: SCRIPTED, input });
    await run.done;
    expect(executed).toHaveLength(12);
    expect(new Set(executed).size).toBe(12);
    other.close();
    own.close();
  });

  test("nothing of a replay is executed, but what is still open at its end", async () => {
    const executed: unknown[] = [];
    const mark = { run: (args: unknown) => executed.push(args) };
    const first = device({ tools: { mark } });
    const session = await first.createSession();
    const run = await first.start({
      session,
      agent: SCRIPTED,
      input: { do: [tools({ name: "mark", args: "a" }), tools({ name: "later", args: "b" })] },
      tools: [{ name: "mark" }, { name: "later" }],
    });
    await eventually(() => run.state.tool_calls.length === 2);
    first.close();
    const second = device({ tools: { mark, later: mark } });
    const again = second.follow({ session, run: run.run_id });
    await again.done;
    expect(executed).toEqual(["a", "b"]);
  });

  test("a page that is reloaded in the middle does not begin a call again: nobody knows what came of it", async () => {
    const storage = memory();
    let begun = 0;
    const hang = () => {
      begun += 1;
      return never();
    };
    const first = device({ storage, tools: { hang: { leaseMs: 1_000, run: hang } } });
    const run = await start(first, tools({ name: "hang", args: 1 }));
    await eventually(() => begun === 1);
    first.close();
    const second = device({ storage, tools: { hang: { leaseMs: 1_000, run: hang } } });
    const again = second.follow({ session: run.session_id, run: run.run_id });
    await again.done;
    expect(begun).toBe(1);
    expect(again.state.tool_calls).toMatchObject([
      { status: "failed", error: { code: "outcome_unknown" } },
    ]);
    expect(storage.length).toBe(0);
  });

  test("but one whose tool says that it may be, and an outcome that was not reported is, without executing it", async () => {
    const storage = memory();
    let begun = 0;
    const first = device({
      storage,
      tools: {
        again: { leaseMs: 1_000, idempotent: true, run: never },
        done: { leaseMs: 1_000, run: never },
      },
    });
    const run = await start(first, tools({ name: "again", args: 1 }, { name: "done", args: 1 }));
    await eventually(() => storage.length === 2);
    first.close();
    const call = run.state.tool_calls.find(({ name }) => name === "done");
    const key = `throughline.call.${run.run_id}.${call?.tool_call_id}`;
    const page: unknown = JSON.parse(storage.getItem(key) ?? "null");
    storage.setItem(
      key,
      JSON.stringify({ ...Object(page), is: "done", outcome: { result: "kept" } }),
    );
    const second = device({
      storage,
      tools: { again: { idempotent: true, run: () => (begun += 1) }, done: { run: never } },
    });
    const resumed = second.follow({ session: run.session_id, run: run.run_id });
    await resumed.done;
    expect(begun).toBe(1);
    expect(resumed.state.tool_calls).toMatchObject([
      { name: "again", status: "completed", result: 1 },
      { name: "done", status: "completed", result: "kept" },
    ]);
    expect(storage.length).toBe(0);
  });
});

test("[CLI72] a cancelled run aborts its calls' signals", async () => {
  let aborted = false;
  const client = device({
    tools: {
      hang: {
        run: (_args, { signal }) => {
          signal.addEventListener("abort", () => (aborted = true));
          return never();
        },
      },
    },
  });
  const run = await start(client, tools({ name: "hang", args: 1 }));
  await eventually(() => run.state.tool_calls[0]?.status === "claimed");
  await run.cancel();
  await eventually(() => aborted);
  expect((await run.done).status).toBe("cancelled");
});
