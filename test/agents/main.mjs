/** A worker process with the tests' own agents, made as anybody makes one: with the worker SDK, from its dist. */
import { openBroker } from "@throughline/broker";
import { createWorker } from "@throughline/worker";
import { createServer } from "node:http";
import { env } from "node:process";
import { openEffects } from "./effects.mjs";
import { scripted } from "./scripted.mjs";

/** @param {string} name */
function wanted(name) {
  const value = env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
}

const broker = await openBroker({
  servers: wanted("TL_NATS_URL").split(","),
  name: wanted("TL_NODE_ID"),
  shards: Number(wanted("TL_SHARDS")),
  replicas: Number(env["TL_REPLICAS"] ?? "1"),
});
const effects = openEffects(wanted("TL_EFFECTS"));
const log =
  (/** @type {string} */ level) => (/** @type {object} */ fields, /** @type {string} */ text) =>
    console.log(
      JSON.stringify({ level, text, ...fields }, (_, value) =>
        value instanceof Error ? value.stack : value,
      ),
    );
const worker = createWorker({
  broker,
  agents: (env["TL_AGENTS"] ?? "scripted").split(",").map((name) => scripted(name, effects)),
  name: wanted("TL_NODE_ID"),
  capacity: Number(env["TL_CAPACITY"] ?? "100"),
  ackWaitMs: Number(env["TL_ACK_WAIT_MS"] ?? "1000"),
  log: { debug: () => undefined, info: log("info"), warn: log("warn"), error: log("error") },
});
await worker.start();
createServer((_, answer) => answer.end("ready")).listen(
  Number(wanted("TL_ADMIN_PORT")),
  "127.0.0.1",
);
process.once("SIGTERM", () => {
  void worker
    .stop()
    .then(() => broker.close())
    .then(() => process.exit(0));
});
