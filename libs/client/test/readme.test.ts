/** The examples of README.md, run as they stand there, against the double. */
import { readFileSync } from "node:fs";
import { messageText } from "@throughline/protocol";
import { eventually } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import type { Client, ClientOptions } from "../src/index.ts";
import { createClient } from "../src/node.ts";
import type { EdgeDouble, Log } from "./edge-double.ts";
import { stage } from "./stage.ts";

const README = readFileSync(new URL("../README.md", import.meta.url), "utf8");

const MODULES: Readonly<Record<string, object>> = {
  "@throughline/client/node": { createClient },
  "@throughline/protocol": { messageText },
};

/** The code block of that name as a function body; its imports become parameters. */
function example(name: string): (scope: Readonly<Record<string, unknown>>) => Promise<void> {
  const code = new RegExp(`^\`\`\`js ${name}\\n(.*?)^\`\`\``, "ms").exec(README)?.[1];
  if (code === undefined) throw new Error(`README.md has no example called ${name}`);
  const imported: Record<string, unknown> = {};
  const body = code.replaceAll(
    /^import \{ (.*) \} from "(.*)";$/gm,
    (_, list: string, from: string) => {
      const module = MODULES[from];
      if (module === undefined) throw new Error(`the test knows no module ${from}`);
      for (const each of list.split(", ")) imported[each] = Reflect.get(module, each);
      return "";
    },
  );
  return async (scope) => {
    const given = { ...imported, ...scope };
    // oxlint-disable-next-line typescript/no-implied-eval -- the README's own text is what is under test
    const run = new Function(...Object.keys(given), `return (async () => {${body}})();`) as (
      ...values: unknown[]
    ) => Promise<void>;
    await run(...Object.values(given));
  };
}

/** An agent that is done at once. */
function work(log: Log, session: string, run: string): void {
  const text = "# Report\n";
  const message_id = "m1";
  log.append(session, run, { type: "run.started", payload: { attempt: 1, worker: "w" } });
  log.append(session, run, { type: "step.started", payload: { step_id: "s1", name: "scan" } });
  log.append(session, run, {
    type: "message.started",
    payload: { message_id, role: "assistant", channel: "text" },
  });
  log.append(session, run, { type: "model.chunk", payload: { message_id, offset: 0, text } });
  log.append(session, run, { type: "run.completed", payload: { output: { files: 3 } } });
}

function workOnStart(edge: EdgeDouble, log: Log): void {
  edge.faults.command = (command, connection) => {
    if (command.type !== "run.start") return false;
    connection.answer(command);
    work(log, command.session_id, `run_${command.id}`);
    return true;
  };
}

describe("examples", () => {
  test("start", async () => {
    const { edge, log } = await stage();
    workOnStart(edge, log);
    const logged: unknown[][] = [];
    let written = "";
    await example("start")({
      createClient: (options: Parameters<typeof createClient>[0]) =>
        createClient({ ...options, url: edge.url }),
      console: { log: (...values: unknown[]) => logged.push(values) },
      process: { stdout: { write: (text: string) => (written += text) } },
    });
    expect(logged).toEqual([["# scan"], ["completed", { files: 3 }]]);
    expect(written).toBe("# Report\n");
    await eventually(() => edge.connections.size === 0);
  });

  test("show", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "run_1", 0);
    work(log, "ses_1", "run_1");
    const shown: unknown[] = [];
    await example("show")({
      client: client(),
      session: "ses_1",
      runId: "run_1",
      render: (status: string, texts: string[]) => shown.push([status, ...texts]),
    });
    expect(shown.at(-1)).toEqual(["completed", "# Report\n"]);
  });

  test("resume", async () => {
    const { log, client } = await stage();
    log.fill("ses_1", "run_1", 3, { end: true });
    const cursors: unknown[] = [];
    const shown: unknown[] = [];
    await example("resume")({
      client: client(),
      session: "ses_1",
      runId: "run_1",
      keep: (cursor: unknown) => cursors.push(cursor),
      kept: () => cursors[0],
      warn: () => undefined,
      show: (...values: unknown[]) => shown.push(values),
    });
    expect(shown).toEqual([
      [4, "custom"],
      [5, "run.completed"],
    ]);
  });

  test("session", async () => {
    const { edge, log, client } = await stage();
    const shown: unknown[] = [];
    const done = example("session")({
      client: client(),
      session: "ses_1",
      show: (value: unknown) => shown.push(value),
    });
    await eventually(() => edge.sent("subscribe").length === 1);
    log.fill("ses_1", "run_1", 1, { end: true });
    await done;
    expect(shown).toEqual([[["test", "completed"]]]);
  });

  test("steer", async () => {
    const { edge, log, client } = await stage();
    edge.faults.command = (command, connection) => {
      connection.answer(command);
      if (command.type === "run.interrupt")
        log.append(command.session_id, command.run_id, {
          type: "run.interrupted",
          reply_to: command.id,
          payload: { preserve_context: true, by: "ann" },
        });
      if (command.type === "run.cancel" && command.run_id !== undefined)
        log.append(command.session_id, command.run_id, { type: "run.cancelled", payload: {} });
      return true;
    };
    const shown: unknown[] = [];
    await example("steer")({
      client: client(),
      session: "ses_1",
      show: (value: unknown) => shown.push(value),
    });
    expect(shown).toEqual(["cancelled"]);
    expect(edge.sent("run.start")[0]?.id).toBe("nightly-42");
  });

  test("tools", async () => {
    const { edge, log, client } = await stage();
    edge.faults.command = (command, connection) => {
      connection.answer(command);
      const { session_id, run_id } = { session_id: "ses_1", run_id: "run_1" };
      const reply_to = command.id;
      if (command.type === "tool_call.claim") {
        const { tool_call_id, claim_id } = command.payload;
        const payload = { tool_call_id, claim_id, status: "claimed", lease_ms: 30_000 } as const;
        log.append(session_id, run_id, { type: "tool_call.status", reply_to, payload });
      }
      if (command.type === "tool_result.report") {
        const { tool_call_id = "", result = null } = command.payload;
        const payload = { tool_call_id, result: String(result) };
        log.append(session_id, run_id, { type: "tool_call.completed", reply_to, payload });
      }
      return true;
    };
    log.fill("ses_1", "run_1", 0);
    const made: Client[] = [];
    await example("tools")({
      createClient: ({ tools }: ClientOptions) => made.push(client(tools ? { tools } : {})),
      localStorage: undefined,
      readFile: (path: string) => Promise.resolve(`what is in ${path}`),
    });
    const run = made[0]?.follow({ session: "ses_1", run: "run_1" });
    log.append("ses_1", "run_1", {
      type: "tool_call.created",
      payload: {
        tool_call_id: "tc_1",
        name: "read_file",
        args: { path: "a.txt" },
        executor: "client",
        requires_approval: false,
      },
    });
    await eventually(() => run?.state.tool_calls[0]?.status === "completed");
    expect(run?.state.tool_calls[0]).toMatchObject({ result: "what is in a.txt" });
  });
});
