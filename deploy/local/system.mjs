/** The processes of a local system: which, with what settings, in which order. */
import { mkdirSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { ROOT } from "./project.mjs";

/** @typedef {import("./supervisor.mjs").Spec} Spec */
/**
 * @typedef {object} Plan
 * @property {number} port shared by the edges; each has its own behind it
 * @property {number} adminPort the first edge's; the others follow
 * @property {number} natsPort
 * @property {number} natsMonitorPort
 * @property {number | undefined} redisPort `undefined`: run without Redis
 * @property {string} nats the binary
 * @property {string} redis the binary; "" without Redis
 * @property {string} data folder
 * @property {string} streamKey of stream tickets, which both edges take
 */

export const TOKEN = "dev.local.me";
const EDGES = [1, 2];
const HOST = "127.0.0.1";

/** @param {Pick<Plan, "port" | "adminPort">} plan */
export function edgesOf({ port, adminPort }) {
  return EDGES.map((n) => ({ name: `edge-${n}`, port: port + n, adminPort: adminPort + n - 1 }));
}

/** @param {Pick<Plan, "adminPort">} plan */
export function runtimeAdminPort({ adminPort }) {
  return adminPort + EDGES.length;
}

/**
 * The ports that must be free, with what each is for.
 *
 * @param {Pick<Plan, "port" | "adminPort">} plan
 */
export function fixedPorts(plan) {
  return [
    { port: plan.port, what: "shared by the edges" },
    ...edgesOf(plan).flatMap(({ name, port, adminPort }) => [
      { port, what: name },
      { port: adminPort, what: `${name}'s admin port` },
    ]),
    { port: runtimeAdminPort(plan), what: "the runtime's admin port" },
  ];
}

/**
 * Groups in the order of starting; within a group all start together. Stopping goes the other way.
 *
 * @param {Plan} plan
 * @returns {Spec[][]}
 */
export function processesOf(plan) {
  const stores = [
    natsSpec(plan),
    ...(plan.redisPort === undefined ? [] : [redisSpec(plan, plan.redisPort)]),
  ];
  return [stores, [...edgesOf(plan).map((edge) => edgeSpec(plan, edge)), runtimeSpec(plan)]];
}

/** @param {Plan} plan */
function natsSpec({ nats, natsPort, natsMonitorPort, data }) {
  const dir = join(data, "nats");
  mkdirSync(dir, { recursive: true });
  const config = join(dir, "nats.conf");
  writeFileSync(
    config,
    [
      "server_name: local",
      `listen: "${HOST}:${natsPort}"`,
      `http: "${HOST}:${natsMonitorPort}"`,
      `jetstream { store_dir: ${JSON.stringify(dir)} }`,
    ].join("\n"),
  );
  return {
    name: "nats",
    command: nats,
    args: ["-c", config],
    ready: () => ok(natsMonitorPort, "/healthz"),
  };
}

/**
 * @param {Plan} plan
 * @param {number} port
 */
function redisSpec({ redis, data }, port) {
  const dir = join(data, "redis");
  mkdirSync(dir, { recursive: true });
  const args = [
    "--port",
    `${port}`,
    "--bind",
    HOST,
    "--save",
    "",
    "--appendonly",
    "no",
    "--dir",
    dir,
  ];
  return { name: "redis", command: redis, args, ready: () => accepts(port) };
}

/**
 * @param {Plan} plan
 * @param {ReturnType<typeof edgesOf>[number]} edge
 */
function edgeSpec(plan, { name, port, adminPort }) {
  return service("edge", name, adminPort, plan, {
    TL_HOST: HOST,
    TL_PORT: `${port}`,
    TL_SHARED_PORT: `${plan.port}`,
    // There is no load balancer whose endpoints would need time to update.
    TL_DRAIN_MS: "1000",
    TL_STREAM_KEY: plan.streamKey,
  });
}

/** @param {Plan} plan */
function runtimeSpec(plan) {
  // For the shell of `llm`, which is offered where OPENAI_* are set: they reach the runtime as they are.
  const scratch = join(plan.data, "scratch");
  mkdirSync(scratch, { recursive: true });
  return service("runtime", "runtime-1", runtimeAdminPort(plan), plan, {
    TL_ALLOWED_ROOTS: ROOT,
    TL_SHELL_ROOT: scratch,
  });
}

/**
 * @param {"edge" | "runtime"} kind
 * @param {string} name
 * @param {number} adminPort
 * @param {Plan} plan
 * @param {Record<string, string>} own
 * @returns {Spec}
 */
function service(kind, name, adminPort, plan, own) {
  return {
    name,
    command: process.execPath,
    args: ["--enable-source-maps", join(ROOT, `services/${kind}/dist/main.js`)],
    env: {
      TL_NODE_ID: name,
      TL_ADMIN_HOST: HOST,
      TL_ADMIN_PORT: `${adminPort}`,
      TL_NATS_URL: `nats://${HOST}:${plan.natsPort}`,
      ...(plan.redisPort === undefined
        ? {}
        : { TL_REDIS_URL: `redis://${HOST}:${plan.redisPort}` }),
      TL_DEV_TOKENS: "1",
      ...own,
    },
    ready: () => ok(adminPort, "/readyz"),
  };
}

/**
 * @param {number} port
 * @param {string} path
 */
async function ok(port, path) {
  return (await fetch(`http://${HOST}:${port}${path}`, { signal: AbortSignal.timeout(2000) })).ok;
}

/** @param {number} port */
function accepts(port) {
  return new Promise((/** @type {(ok: boolean) => void} */ resolve) => {
    const socket = connect(port, HOST);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
