/** The tool as the agent has it: in a real worker, asked for by a model, allowed by a person. */
import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Broker, openBroker, type RunRef } from "@throughline/broker";
import type { RunState } from "@throughline/protocol";
import {
  eventually,
  type NatsServer,
  removeDir,
  type Service,
  startNats,
  startRuntime,
  tempDir,
} from "@throughline/testkit";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openShell } from "../../src/llm/shell.ts";
import { cancelRun, ended, sendCommand, startRun, stateWhen } from "../follow.ts";
import { type LlmServer, startLlmServer } from "./server.ts";
import { answering, calling } from "./wire.ts";

let nats: NatsServer;
let server: LlmServer;
let broker: Broker;
let folder: string;
const running: Service[] = [];

beforeAll(async () => {
  nats = await startNats();
  server = await startLlmServer();
  broker = await openBroker({ servers: [nats.url], name: "test", shards: 4 });
  folder = realpathSync(tempDir("scratch"));
});
afterEach(async () => {
  server.reset();
  await Promise.all(running.splice(0).map((service) => service.dispose()));
});
afterAll(async () => {
  await broker.close();
  await server.close();
  await nats.dispose();
  removeDir(folder);
});

async function runtime(env: Record<string, string>): Promise<void> {
  const key = join(folder, "..", "llm-key");
  writeFileSync(key, "sk-from-file\n");
  running.push(
    await startRuntime({
      natsUrl: nats.url,
      env: {
        OPENAI_BASE_URL: server.url,
        OPENAI_API_KEY: "",
        OPENAI_API_KEY_FILE: key,
        OPENAI_MODEL: "m-1",
        ...env,
      },
    }),
  );
}

async function asking(cmd: string): Promise<{ ref: RunRef; state: RunState }> {
  server.will(calling({ id: "a", name: "shell", args: { cmd } }));
  const ref = await startRun(broker, "llm", { prompt: "run it" });
  return {
    ref,
    state: await stateWhen(broker, ref, (state) => state.status === "waiting_approval"),
  };
}

async function decide(ref: RunRef, state: RunState, decision: "allow" | "deny"): Promise<void> {
  const [request] = state.approvals;
  if (request === undefined) throw new Error("nothing is asked");
  await sendCommand(broker, ref, {
    type: "approval.respond",
    id: "decide",
    reply_to: request.event_id,
    payload: { approval_id: request.approval_id, decision, args_hash: request.args_hash },
  });
}

const told = (): unknown => server.asked.at(-1)?.body.messages.at(-1)?.["content"];

describe("shell", () => {
  it("[SHL2][SHL6] runs in its folder once a person has allowed it, without the worker's settings", async () => {
    await runtime({ TL_SHELL_ROOT: folder });
    const { ref, state } = await asking("pwd; env; echo done > allowed");
    expect(state.approvals[0]).toMatchObject({
      operation: "shell",
      description: "pwd; env; echo done > allowed",
      risk_level: "high",
    });
    expect(existsSync(join(folder, "allowed"))).toBe(false);
    server.will(answering("Done."));
    await decide(ref, state, "allow");
    const { state: end } = await ended(broker, ref);
    expect(end.status).toBe("completed");
    expect(readFileSync(join(folder, "allowed"), "utf8")).toBe("done\n");
    const result = JSON.parse(String(told())) as Record<string, unknown>;
    expect(result).toMatchObject({ exit_code: 0, signal: null, left_out: 0, timed_out: false });
    expect(result["output"]).toContain(`${folder}\n`);
    expect(result["output"]).not.toMatch(/OPENAI|TL_|sk-/);
    expect(server.asked[0]?.headers.authorization).toBe("Bearer sk-from-file");
  });

  it("[SHL2] does not run what was denied", async () => {
    await runtime({ TL_SHELL_ROOT: folder });
    const { ref, state } = await asking("touch denied");
    server.will(answering("As you like."));
    await decide(ref, state, "deny");
    expect((await ended(broker, ref)).state.status).toBe("completed");
    expect(told()).toMatch(/^Error \(denied\)/);
    expect(existsSync(join(folder, "denied"))).toBe(false);
  });

  it("[SHL4] says so when its time is over, with what was printed till then", async () => {
    await runtime({ TL_SHELL_ROOT: folder, TL_SHELL_TIMEOUT_MS: "300" });
    const { ref, state } = await asking("echo begun; sleep 300");
    server.will(answering("Slow."));
    await decide(ref, state, "allow");
    await ended(broker, ref);
    expect(JSON.parse(String(told()))).toMatchObject({ output: "begun\n", timed_out: true });
  });

  it("[SHL5] is killed when the run is cancelled", async () => {
    await runtime({ TL_SHELL_ROOT: folder });
    const { ref, state } = await asking("sleep 300 & echo $! > pid; wait");
    await decide(ref, state, "allow");
    const pid = await eventually(() => {
      const file = join(folder, "pid");
      return existsSync(file) && Number(readFileSync(file, "utf8"));
    });
    await cancelRun(broker, ref);
    expect((await ended(broker, ref)).state.status).toBe("cancelled");
    await eventually(() => !existsSync(`/proc/${pid}`));
  });

  it("[SHL1] is not there unless a folder is named", async () => {
    await runtime({});
    server.will(
      calling({ id: "a", name: "shell", args: { cmd: "touch unasked" } }),
      answering("No."),
    );
    const { state } = await ended(broker, await startRun(broker, "llm", "run it"));
    expect(server.asked[0]?.body).not.toHaveProperty("tools");
    expect(state.approvals).toEqual([]);
    expect(told()).toMatch(/^Error \(unknown_tool\)/);
    expect(existsSync(join(folder, "unasked"))).toBe(false);
  });

  it.each(["nothing", "file"])("[SHL1] does not begin in what is no folder: %s", async (name) => {
    mkdirSync(join(folder, "in"), { recursive: true });
    writeFileSync(join(folder, "in", "file"), "");
    const options = { folder: join(folder, "in", name), searchPath: "/bin", timeoutMs: 1_000 };
    await expect(openShell(options)).rejects.toThrow(/^TL_SHELL_ROOT: /);
  });
});
