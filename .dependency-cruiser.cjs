/**
 * Who may import whom. Every row of the import table in the README's architecture section is a rule here;
 * deploy/local/test/architecture.test.ts breaks each once.
 */

const UWS =
  "node_modules/(@trufflesuite/uws-js-unofficial|@btc-vision/uwebsockets\\.js|uWebSockets\\.js)";
const NATS = "node_modules/(@nats-io|nats)/";

/** A room's own sources, and the packages of its dependencies. */
const room = (path) => `^${path}/src/`;
const otherRooms = (...allowed) => `^(libs|services)/(?!(${allowed.join("|")})/)`;

/** @type {import("dependency-cruiser").IConfiguration} */
module.exports = {
  forbidden: [
    {
      name: "protocol-stands-alone",
      comment: "It runs anywhere, browsers included: no room, no I/O, no package but zod.",
      severity: "error",
      from: { path: room("libs/protocol") },
      to: { pathNot: ["^libs/protocol/src/", "node_modules/zod/"] },
    },
    {
      name: "broker-below-services",
      comment: "NATS and the protocol, nothing above.",
      severity: "error",
      from: { path: room("libs/broker") },
      to: { path: ["^services/", "^libs/(?!(broker|protocol)/)", "node_modules/(?!@nats-io/)"] },
    },
    {
      name: "nats-only-in-broker",
      severity: "error",
      from: { path: "^(libs|services)/", pathNot: room("libs/broker") },
      to: { path: NATS },
    },
    {
      name: "uws-only-in-its-seam",
      comment: "One file knows which build of uWebSockets is running.",
      severity: "error",
      from: { path: "^(libs|services)/", pathNot: "^services/edge/src/transport/uws\\.ts$" },
      to: { path: UWS },
    },
    {
      name: "client-sees-the-protocol-only",
      severity: "error",
      from: { path: room("libs/client") },
      to: { path: [otherRooms("client", "protocol"), NATS] },
    },
    {
      name: "client-without-node",
      comment: "It runs in browsers; what needs Node stands in an entry of its own.",
      severity: "error",
      from: { path: room("libs/client"), pathNot: "^libs/client/src/node" },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "worker-on-broker-and-protocol",
      severity: "error",
      from: { path: room("libs/worker") },
      to: { path: [otherRooms("worker", "broker", "protocol"), UWS] },
    },
    {
      name: "service-kit-knows-no-room",
      severity: "error",
      from: { path: room("libs/service-kit") },
      to: { path: otherRooms("service-kit") },
    },
    {
      name: "testkit-without-services",
      comment: "It starts them as processes, from dist.",
      severity: "error",
      from: { path: room("libs/testkit") },
      to: { path: "^services/" },
    },
    {
      name: "only-tests-import-testkit",
      severity: "error",
      from: {
        path: "^(libs|services)/",
        pathNot: ["^libs/testkit/", "^(libs|services)/[^/]+/test/"],
      },
      to: { path: "^libs/testkit/" },
    },
    {
      name: "services-do-not-import-each-other",
      severity: "error",
      from: { path: "^services/([^/]+)/src/" },
      to: { path: "^services/", pathNot: "^services/$1/" },
    },
    {
      name: "edge-has-no-agents",
      severity: "error",
      from: { path: room("services/edge") },
      to: { path: "^libs/(worker|client)/" },
    },
    {
      name: "runtime-is-no-edge",
      severity: "error",
      from: { path: room("services/runtime") },
      to: { path: ["^libs/client/", UWS] },
    },
    {
      name: "edge-core-knows-only-the-tails-type",
      comment:
        "Session and fan-out are driven by ports: of the broker they see types, of transport and config nothing.",
      severity: "error",
      from: { path: "^services/edge/src/(session|fanout)/" },
      to: { path: ["^libs/broker/"], dependencyTypesNot: ["type-only"] },
    },
    {
      name: "edge-core-without-transport",
      severity: "error",
      from: { path: "^services/edge/src/(session|fanout)/" },
      to: { path: [UWS, NATS, "^services/edge/src/(transport/|config\\.ts|main\\.ts)"] },
    },
    {
      name: "transport-without-broker",
      comment: "It speaks to the session port.",
      severity: "error",
      from: { path: "^services/edge/src/transport/" },
      to: { path: "^libs/broker/" },
    },
    {
      name: "console-from-outside",
      comment: "It sees the system only through the client SDK and the HTTP API.",
      severity: "error",
      from: { path: room("services/console") },
      to: {
        path: otherRooms("console", "client", "protocol").replace(
          "^(libs|services)",
          "^(libs|services)",
        ),
      },
    },
    {
      name: "nothing-flows-back",
      comment: "A room's main.ts is imported by nobody.",
      severity: "error",
      from: {},
      to: { path: "^services/[^/]+/src/main\\.ts$" },
    },
    {
      name: "no-cycle",
      severity: "error",
      from: {},
      // Two files that know each other's types are one idea in two parts; what is loaded must not go round.
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
    {
      name: "no-unresolvable",
      comment: "An import that was not resolved was not checked either.",
      severity: "error",
      from: {},
      to: { couldNotResolve: true },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    exclude: { path: "(^|/)dist/" },
    tsPreCompilationDeps: true,
    combinedDependencies: false,
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["@throughline/source", "import", "node", "require", "types", "default"],
      extensions: [".ts", ".mts", ".js", ".mjs", ".cjs", ".json"],
    },
  },
};
