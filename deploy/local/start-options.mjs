/** The command line of `npm start`. */
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { LOCAL } from "./project.mjs";
import { fixedPorts } from "./system.mjs";
import { Plain } from "./terminal.mjs";

/** @typedef {{ port: number, adminPort: number, data: string }} Options */

export const HELP = `npm start: runs Throughline on this machine, until Ctrl-C.

It installs what is missing, builds, and starts NATS (JetStream), Redis, two edges and a runtime worker.
Everything listens on 127.0.0.1 only.

  npm start -- [options]

  --port PORT        the edges' shared port (8080); edge-1 and edge-2 also have the next two
  --admin-port PORT  edge-1's admin port (9081); edge-2 and the runtime have the next two
  --data FOLDER      where streams and logs are kept (.throughline/data)
  --help             this text

NATS and Redis take 4222 and 6379, or the next free ports. TL_* variables reach the services, except those
that are set here. With OPENAI_MODEL, and OPENAI_API_KEY or OPENAI_BASE_URL, the agent llm is offered; its shell
begins in .throughline/data/scratch, and asks first. Deleting .throughline/data forgets all runs.`;

/**
 * @param {string[]} args
 * @returns {Options | "help"}
 */
export function readOptions(args) {
  const values = parse(args);
  if (values.help) return "help";
  const options = {
    port: readPort("--port", values.port),
    adminPort: readPort("--admin-port", values["admin-port"]),
    data: resolve(values.data),
  };
  const ports = fixedPorts(options).map(({ port }) => port);
  if (new Set(ports).size < ports.length) {
    throw new Plain("--port and --admin-port overlap: each takes three ports in a row");
  }
  return options;
}

/** @param {string[]} args */
function parse(args) {
  try {
    return parseArgs({
      args,
      options: {
        port: { type: "string", default: "8080" },
        "admin-port": { type: "string", default: "9081" },
        data: { type: "string", default: join(LOCAL, "data") },
        help: { type: "boolean", default: false },
      },
    }).values;
  } catch (error) {
    throw new Plain(`${error instanceof Error ? error.message : String(error)}\n\n${HELP}`);
  }
}

/**
 * @param {string} flag
 * @param {string} text
 */
export function readPort(flag, text) {
  const port = Number(text);
  // Two more follow each.
  if (Number.isInteger(port) && port > 0 && port <= 65_533) return port;
  throw new Plain(`${flag} must be a port number up to 65533, not "${text}"`);
}
