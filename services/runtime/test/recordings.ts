import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";

/** Made by hand, in the form of a provider's; also what the agent's example names. */
export const RECORDINGS: string = resolve(import.meta.dirname, "../recordings");

const CHECKOUT = resolve(import.meta.dirname, "../../..");

/** Streams of real providers, where somebody has laid a folder with `data/llm-streams` beside the checkout. */
export function realRecordings(): string[] {
  const beside = resolve(CHECKOUT, "..");
  return readdirSync(beside)
    .map((name) => join(beside, name, "data", "llm-streams"))
    .filter((folder) => existsSync(folder))
    .flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)))
    .filter((file) => file.endsWith(".jsonl"));
}
