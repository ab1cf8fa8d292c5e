import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Broker, openAgentDirectory, openBroker } from "@throughline/broker";
import { eventually, type NatsServer, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ended, reduced, startRun } from "./harness.ts";

const README = readFileSync(join(import.meta.dirname, "..", "README.md"), "utf8");

let nats: NatsServer;
let broker: Broker;
let folder: string;

beforeAll(async () => {
  nats = await startNats();
  broker = await openBroker({ servers: [nats.url], name: "test" });
  // Beside the tests, so that it finds the packages as they do.
  folder = mkdtempSync(join(import.meta.dirname, ".readme-"));
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await broker.close();
  await nats.dispose();
});

describe("README", () => {
  it("its example is a worker that does what it says, and ends on SIGTERM", async () => {
    const example = /```ts\n(.*?)```/s.exec(README)?.[1] ?? "";
    const here = example.replace("nats://127.0.0.1:4222", nats.url);
    expect(here).not.toBe(example);
    const file = join(folder, "example.ts");
    writeFileSync(file, here);
    const before = process.listeners("SIGTERM");
    await import(/* @vite-ignore */ file);
    await eventually(() => openAgentDirectory(broker).offered("word-count"));
    const onSigterm = process.listeners("SIGTERM").find((listener) => !before.includes(listener));

    const ref = await startRun(broker, "word-count", { input: { text: "one two\n\nthree" } });
    const state = reduced(ref, await ended(broker, ref));
    expect(state.output).toEqual({ total: 3 });
    expect(state.app).toEqual({ total: 3 });
    expect(state.messages.map((m) => m.text)).toEqual(["Line 1: 2\nLine 2: 0\nLine 3: 1\n"]);

    const wrong = await ended(broker, await startRun(broker, "word-count", { input: { text: 5 } }));
    expect(wrong.at(-1)?.payload).toMatchObject({
      code: "invalid_input",
      message: "text: a string is wanted",
    });
    const empty = await ended(
      broker,
      await startRun(broker, "word-count", { input: { text: " " } }),
    );
    expect(empty.at(-1)?.payload).toMatchObject({ code: "empty_text" });

    expect(onSigterm).toBeDefined();
    onSigterm?.("SIGTERM");
    const directory = openAgentDirectory(broker);
    await eventually(async () => !(await directory.offered("word-count")));
  });

  it("names every option of createWorker", () => {
    const source = readFileSync(join(import.meta.dirname, "..", "src", "worker.ts"), "utf8");
    const options = /interface WorkerOptions \{(.*?)\n\}/s.exec(source)?.[1] ?? "";
    const names = [...options.matchAll(/readonly (\w+)\??:/g)].map((match) => match[1]);
    expect(names.length).toBeGreaterThan(5);
    for (const name of names) expect(README).toContain(`\`${name}\``);
  });
});
