/** Rules about what is really loaded, that is, after types are erased. */
const { options } = require("./.dependency-cruiser.cjs");

/** @type {import("dependency-cruiser").IConfiguration} */
module.exports = {
  forbidden: [
    {
      name: "client-without-zod-at-run-time",
      comment: "A browser does not load a schema library in order to read a stream.",
      severity: "error",
      from: { path: "^libs/client/src/" },
      to: { path: "node_modules/zod/", reachable: true },
    },
  ],
  options: { ...options, tsPreCompilationDeps: false },
};
