/** Where things are in the project. */
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");
/** Everything that local commands leave behind; git-ignored, and safe to delete. */
export const LOCAL = join(ROOT, ".throughline");
/** Programs obtained for the project alone. */
export const BIN = join(LOCAL, "bin");
/** vitest's own report of the last `npm test`. */
export const TEST_REPORT = join(LOCAL, "tests.json");
