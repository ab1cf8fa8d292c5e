/** What `npm start` says when all is up. */
import { join } from "node:path";
import { edgesOf, TOKEN } from "./system.mjs";
import { bold, dim } from "./terminal.mjs";

/** @param {import("./system.mjs").Plan} plan */
export function summary(plan) {
  const at = (/** @type {number} */ port) => `http://127.0.0.1:${port}`;
  const edges = edgesOf(plan);
  const own = edges.map((edge) => `${edge.name} ${at(edge.port)}`).join(", ");
  const stores = [
    `nats://127.0.0.1:${plan.natsPort}`,
    ...(plan.redisPort ? [`redis://127.0.0.1:${plan.redisPort}`] : []),
  ];
  const tryIt = (/** @type {string[]} */ ...more) => {
    const flags = [...(plan.port === 8080 ? [] : ["--port", plan.port]), ...more];
    return ["npm run try", ...(flags.length > 0 ? ["--", ...flags] : [])].join(" ");
  };
  const tries = [
    [tryIt(), "an agent reports on this folder: started at edge-1, followed at edge-2"],
    [tryIt("--kill"), "the same, and edge-2 is killed on the way: the text goes on where it was"],
  ];
  return `
${bold("Throughline is running.")}  ${dim("Ctrl-C stops it and leaves nothing running.")}

  both edges   ${bold(at(plan.port))}
  each         ${own}
  health       ${edges.map((edge) => `${at(edge.adminPort)}/readyz`).join(", ")}
  dev token    ${bold(TOKEN)}   ${dim("(dev.<tenant>.<user>; on this machine only)")}
  behind them  ${stores.join(", ")}
  logs         ${join(plan.data, "logs")}

Try, in another terminal:

${tries.map(([command, what]) => `  ${command}\n      ${dim(what ?? "")}`).join("\n")}
`;
}
