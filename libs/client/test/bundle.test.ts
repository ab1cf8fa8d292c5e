import { fileURLToPath } from "node:url";
import { build } from "vite";
import { expect, test } from "vitest";

test("[CLI50] bundled for browsers it is this room and the protocol, and nothing else", async () => {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const built = await build({
    root,
    configFile: false,
    logLevel: "silent",
    resolve: { conditions: ["@throughline/source", "browser", "import", "default"] },
    build: { write: false, lib: { entry: "src/index.ts", formats: ["es"] } },
  });
  const [bundle] = Array.isArray(built) ? built : [built];
  if (bundle === undefined || !("output" in bundle)) throw new Error("nothing was built");
  const chunks = bundle.output.filter((part) => part.type === "chunk");
  const modules = chunks.flatMap((chunk) => Object.keys(chunk.modules));
  expect(modules.length).toBeGreaterThan(20);
  expect(modules.filter((file) => !/\/libs\/(client|protocol)\/src\//.test(file))).toEqual([]);
  expect(chunks.flatMap((chunk) => [...chunk.imports, ...chunk.dynamicImports])).toEqual([]);
});
