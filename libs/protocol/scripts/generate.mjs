/*
 * Writes what comes from the code: wire.json, and the blocks of PROTOCOL.md.
 *   npm run generate -w @throughline/protocol
 */
import { execFileSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { runnerImport } from "vite";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** @type {{ module: typeof import("./derive.ts") }} */
const { module: derive } = await runnerImport(fileURLToPath(new URL("derive.ts", import.meta.url)));

const before = existsSync(derive.wireFile) ? derive.readWire() : {};
const wire = derive.currentWire();
for (const name of derive.changedMessages(before, wire)) console.log(`changed: ${name}`);

writeFileSync(derive.wireFile, `${JSON.stringify(wire, null, 2)}\n`);
writeFileSync(derive.documentFile, derive.currentDocument());

const written = [derive.wireFile, derive.documentFile].map((file) => fileURLToPath(file));
execFileSync("npx", ["oxfmt", ...written], { cwd: root, stdio: "inherit" });
