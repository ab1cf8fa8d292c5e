/**
 * `npm run try`: lets an agent report on this folder. The run is started through edge-1 and followed through
 * edge-2; with `--kill`, edge-2 is killed on the way, and the text goes on at edge-1 where it was.
 */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { holderOf, isFree } from "./ports.mjs";
import { ROOT } from "./project.mjs";
import { readPort } from "./start-options.mjs";
import { edgesOf, TOKEN } from "./system.mjs";
import { dim, entry, Plain, say } from "./terminal.mjs";

/** Slow enough for a person to read along. */
const PACE_MS = 12;
const KILL_AFTER_CHARS = 400;

await entry(async () => {
  const { values } = parseArgs({
    options: {
      port: { type: "string", default: "8080" },
      path: { type: "string", default: ROOT },
      kill: { type: "boolean", default: false },
    },
  });
  const [first, second] = edgesOf({
    port: readPort("--port", values.port),
    adminPort: 0,
  });
  if (first === undefined || second === undefined) throw new Error("a local system has two edges");
  if (await isFree(second.port))
    throw new Plain("no edge answers: run npm start first, in another terminal");

  const file = join(ROOT, "libs/client/dist/node.js");
  const { createClient } = /** @type {typeof import("../../libs/client/src/node.ts")} */ (
    await import(pathToFileURL(file).href)
  );
  const urlOf = (/** @type {{ port: number }} */ edge) => `ws://127.0.0.1:${edge.port}/v1/connect`;
  const starter = createClient({ url: urlOf(first), token: TOKEN });
  const session = await starter.createSession({ title: "npm run try" });
  const input = { path: values.path, pace_ms: PACE_MS };
  const started = await starter.start({ session, agent: "repo-report", input });
  say(dim(`[${first.name}] started ${started.run_id} of ${session}`));
  started.close();

  const edges = [second, first];
  const viewer = createClient({ urls: edges.map(urlOf), token: TOKEN });
  viewer.connection.subscribe(() => {
    const state = viewer.connection.getSnapshot();
    if (state.name === "open" || state.name === "waiting")
      say(dim(`\n[${edges[state.url]?.name}] ${state.name}`));
  });
  const run = viewer.follow({ session, run: started.run_id });
  const show = printer();
  let victim = values.kill ? await holderOf(second.port) : undefined;
  for await (const item of run) {
    const printed = show(run.state.messages);
    if (victim !== undefined && printed > KILL_AFTER_CHARS) {
      process.kill(victim.pid, "SIGKILL");
      say(dim(`\n[${second.name}] killed`));
      victim = undefined;
    }
    if (
      item.type === "run.completed" ||
      item.type === "run.failed" ||
      item.type === "run.cancelled"
    ) {
      say(dim(`\n[${item.type}] ${run.state.seq} events, cursor ${run.cursor}`));
    }
  }
  viewer.close();
  starter.close();
});

/** Prints what has been added to the run's messages; returns how much has been printed in all. */
function printer() {
  /** @type {Map<string, number>} */
  const printed = new Map();
  let total = 0;
  return (
    /** @type {readonly { message_id: string, text: string, live: string }[]} */ messages,
  ) => {
    for (const { message_id: id, text, live } of messages) {
      const all = text + live;
      const before = printed.get(id) ?? 0;
      if (all.length <= before) continue;
      process.stdout.write(all.slice(before));
      printed.set(id, all.length);
      total += all.length - before;
    }
    return total;
  };
}
