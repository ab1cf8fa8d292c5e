/* Where the files are that come from the code, or partly do, and what they should hold. */
import { readFileSync } from "node:fs";
import { currentBlocks, withBlocks } from "./tables.ts";
import { wireSchema, type Wire } from "./wire.ts";

export const wireFile: URL = new URL("../wire.json", import.meta.url);
export const documentFile: URL = new URL("../../../PROTOCOL.md", import.meta.url);

export function readWire(): Wire {
  return wireSchema.parse(JSON.parse(readFileSync(wireFile, "utf8")));
}

export function readDocument(): string {
  return readFileSync(documentFile, "utf8");
}

/** PROTOCOL.md as it should be. */
export function currentDocument(): string {
  return withBlocks(readDocument(), currentBlocks());
}

export { changedMessages, currentWire } from "./wire.ts";
