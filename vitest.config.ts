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
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
