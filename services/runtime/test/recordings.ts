import { existsSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";

export const FIXTURES: string = join(import.meta.dirname, "fixtures");

export function fixture(name: string): string {
  return join(FIXTURES, name);
}

/** Recordings of real providers, where somebody has laid them beside the checkout. */
const BESIDE = resolve(import.meta.dirname, "../../../../shared/data/llm-streams");

export function realRecordings(): string[] {
  if (!existsSync(BESIDE)) return [];
  return readdirSync(BESIDE)
    .filter((name) => name.endsWith(".jsonl"))
    .map((name) => join(BESIDE, name));
}
