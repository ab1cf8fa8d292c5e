import { defineConfig } from "vitest/config";

const conditions = ["@throughline/source", "node", "import", "default"];

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions, externalConditions: conditions } },
  test: {
    include: [
      "{libs,services,deploy}/*/test/**/*.test.ts",
      "loadtest/test/**/*.test.ts",
      "test/**/*.test.ts",
    ],
    exclude: [
      "**/node_modules/**",
      "**/dist/**",
      ...(process.env["SOAK"] ? [] : ["**/*.soak.test.ts"]),
    ],
    pool: "forks",
    // Most tests wait for a server most of the time; by default a machine with two cores runs one file at a time.
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
