import { readFileSync } from "node:fs";

/** Of the package, which lies one folder up of `src` and of `dist`. */
export function version(): string {
  const text = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return /"version": "([^"]+)"/.exec(text)?.[1] ?? "unknown";
}
