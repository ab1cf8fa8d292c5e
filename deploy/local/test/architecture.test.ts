import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { checkArchitecture } from "../architecture.mjs";

interface Rules {
  forbidden: { name: string }[];
}
const require = createRequire(import.meta.url);
const rules = [
  "../../../.dependency-cruiser.cjs",
  "../../../.dependency-cruiser.run-time.cjs",
].flatMap((file) => (require(file) as Rules).forbidden);

const NATS = "node_modules/@nats-io/jetstream/index.js";
const UWS = "node_modules/@trufflesuite/uws-js-unofficial/index.js";

interface Breach {
  file: string;
  imports: string;
  typeOnly?: true;
}

/** One breach for each rule: this file, importing that. */
const BREACHES: Record<string, Breach[]> = {
  "protocol-stands-alone": [
    { file: "libs/protocol/src/bad.ts", imports: "node:fs" },
    { file: "libs/protocol/src/bad.ts", imports: "libs/broker/src/index.ts", typeOnly: true },
    { file: "libs/protocol/src/bad.ts", imports: "node_modules/pino/index.js" },
  ],
  "broker-below-services": [
    { file: "libs/broker/src/bad.ts", imports: "services/edge/src/good.ts", typeOnly: true },
    { file: "libs/broker/src/bad.ts", imports: "libs/worker/src/index.ts" },
    { file: "libs/broker/src/bad.ts", imports: UWS },
  ],
  "nats-only-in-broker": [
    { file: "libs/worker/src/bad.ts", imports: NATS },
    { file: "services/edge/src/session/bad.ts", imports: NATS, typeOnly: true },
    { file: "services/runtime/src/bad.ts", imports: NATS },
  ],
  "uws-only-in-its-seam": [
    { file: "services/edge/src/transport/websocket.ts", imports: UWS },
    { file: "services/edge/src/fanout/bad.ts", imports: UWS, typeOnly: true },
  ],
  "client-sees-the-protocol-only": [
    { file: "libs/client/src/bad.ts", imports: "libs/broker/src/index.ts", typeOnly: true },
    { file: "libs/client/src/bad.ts", imports: NATS },
  ],
  "client-without-node": [{ file: "libs/client/src/bad.ts", imports: "node:events" }],
  "client-without-zod-at-run-time": [
    { file: "libs/client/src/bad.ts", imports: "libs/protocol/src/schemas.ts" },
  ],
  "worker-on-broker-and-protocol": [
    { file: "libs/worker/src/bad.ts", imports: "libs/client/src/index.ts" },
  ],
  "service-kit-knows-no-room": [
    { file: "libs/service-kit/src/bad.ts", imports: "libs/broker/src/index.ts" },
  ],
  "testkit-without-services": [
    { file: "libs/testkit/src/bad.ts", imports: "services/edge/src/good.ts" },
  ],
  "only-tests-import-testkit": [
    { file: "libs/worker/src/bad.ts", imports: "libs/testkit/src/index.ts" },
    { file: "services/edge/src/bad.ts", imports: "libs/testkit/src/index.ts" },
  ],
  "services-do-not-import-each-other": [
    { file: "services/runtime/src/bad.ts", imports: "services/edge/src/good.ts" },
  ],
  "edge-has-no-agents": [{ file: "services/edge/src/bad.ts", imports: "libs/worker/src/index.ts" }],
  "runtime-is-no-edge": [
    { file: "services/runtime/src/bad.ts", imports: "libs/client/src/index.ts" },
  ],
  "edge-core-knows-only-the-tails-type": [
    { file: "services/edge/src/session/bad.ts", imports: "libs/broker/src/index.ts" },
    { file: "services/edge/src/fanout/bad.ts", imports: "libs/broker/src/index.ts" },
  ],
  "edge-core-without-transport": [
    { file: "services/edge/src/session/bad.ts", imports: "services/edge/src/transport/uws.ts" },
    {
      file: "services/edge/src/fanout/bad.ts",
      imports: "services/edge/src/config.ts",
      typeOnly: true,
    },
  ],
  "transport-without-broker": [
    { file: "services/edge/src/transport/bad.ts", imports: "libs/broker/src/index.ts" },
  ],
  "console-from-outside": [
    { file: "services/console/src/bad.ts", imports: "libs/broker/src/index.ts" },
  ],
  "nothing-flows-back": [
    { file: "services/edge/src/bad.ts", imports: "services/edge/src/main.ts" },
  ],
  "no-cycle": [{ file: "libs/broker/src/around.ts", imports: "libs/broker/src/back.ts" }],
  "no-unresolvable": [{ file: "libs/worker/src/bad.ts", imports: "./nowhere.ts" }],
};

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "throughline-rooms-"));
  for (const [file, source] of Object.entries(CLEAN)) write(file, source);
});
afterEach(() => rmSync(root, { recursive: true }));

/** Rooms that keep to the rules. */
const CLEAN: Record<string, string> = {
  "package.json": '{ "type": "module" }',
  "node_modules/@nats-io/jetstream/index.js": "export const a = 1;",
  "node_modules/@trufflesuite/uws-js-unofficial/index.js": "export const a = 1;",
  "node_modules/pino/index.js": "export const a = 1;",
  "node_modules/zod/index.js": "export const a = 1;",
  "libs/protocol/src/schemas.ts":
    'import { a } from "../../../node_modules/zod/index.js";\nexport const s: number = a;',
  "libs/protocol/src/index.ts":
    'import type { s } from "./schemas.ts";\nexport const a: typeof s = 1;',
  "libs/broker/src/index.ts": `import { a } from "../../../${NATS}";\nimport { readFileSync } from "node:fs";\nexport const b: unknown = [a, readFileSync];`,
  "libs/client/src/index.ts":
    'import { a } from "../../protocol/src/index.ts";\nexport const b: number = a;',
  "libs/client/src/node.ts": 'import { a } from "node:events";\nexport const b: unknown = a;',
  "libs/worker/src/index.ts":
    'import { b } from "../../broker/src/index.ts";\nexport const a: unknown = b;',
  "libs/service-kit/src/index.ts":
    'import { a } from "../../../node_modules/pino/index.js";\nexport const b: unknown = a;',
  "libs/testkit/src/index.ts":
    'import { b } from "../../broker/src/index.ts";\nexport const a: unknown = b;',
  "services/edge/src/good.ts": "export const a = 1;",
  "services/edge/src/config.ts": "export const a = 1;",
  "services/edge/src/main.ts": 'import { a } from "./good.ts";\nconsole.log(a);',
  "services/edge/src/session/good.ts":
    'import type { b } from "../../../../libs/broker/src/index.ts";\nexport type B = typeof b;',
  "services/edge/src/transport/uws.ts": `import { a } from "../../../../${UWS}";\nexport const b: unknown = a;`,
  "services/runtime/src/main.ts":
    'import { a } from "../../../libs/worker/src/index.ts";\nconsole.log(a);',
};

function write(file: string, source: string): void {
  mkdirSync(dirname(join(root, file)), { recursive: true });
  writeFileSync(join(root, file), source);
}

/** Writes a file that imports what it must not; returns the file's name. */
function breach(each: Breach, index: number): string {
  const file = each.file.replace("bad.ts", `bad-${index}.ts`);
  const depth = file.split("/").length - 1;
  const specifier = /^(node:|\.)/.test(each.imports)
    ? each.imports
    : `${"../".repeat(depth)}${each.imports}`;
  const body = each.typeOnly ? "export const a: typeof A = 1;" : "export const a: unknown = A;";
  write(file, `import ${each.typeOnly ? "type " : ""}{ a as A } from "${specifier}";\n${body}`);
  return file;
}

describe("the architecture check", () => {
  it("[ARC1] is content with rooms that keep to the rules", async () => {
    const { modules, violations } = await checkArchitecture(root);
    expect(violations).toEqual([]);
    expect(modules).toBeGreaterThan(15);
  });

  it("[ARC2] has a breach here for each of its rules", () => {
    expect(Object.keys(BREACHES).toSorted()).toEqual(rules.map(({ name }) => name).toSorted());
  });

  it("[ARC2] catches every one of them, each by its rule", async () => {
    const breaches = Object.entries(BREACHES).flatMap(([rule, list]) =>
      list.map((each) => ({ rule, ...each })),
    );
    // All in one tree: a run of the cruiser takes a second.
    const expected = breaches.map(({ rule, ...each }, i) => `${rule}: ${breach(each, i)} →`);
    write(
      "libs/broker/src/back.ts",
      'import { a } from "./around.ts";\nexport const b: unknown = a;',
    );
    const { violations } = await checkArchitecture(root);
    const missed = expected.filter((start) => !violations.some((line) => line.startsWith(start)));
    expect(missed).toEqual([]);
  });

  it("[ARC3] fails when it looked at nothing, and when one room was not seen", async () => {
    rmSync(join(root, "libs/worker/src/index.ts"));
    await expect(checkArchitecture(root)).rejects.toThrow(
      "the rules saw no module of libs/worker/src",
    );
    rmSync(join(root, "libs"), { recursive: true });
    rmSync(join(root, "services"), { recursive: true });
    await expect(checkArchitecture(root)).rejects.toThrow("the rules saw no module");
  });
});
