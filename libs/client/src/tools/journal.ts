/**
 * What this device knows of the calls that it executes, kept where a reload does not lose it. Of a call
 * that was begun and has no outcome here, nobody can tell whether it took effect.
 */
import type { Outcome } from "./outcome.ts";

/** The part of Web Storage that is used; `localStorage` is one. Values may come later. */
export interface ClientStorage {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, value: string): void | Promise<void>;
  removeItem(key: string): void | Promise<void>;
}

export type Page =
  | { readonly is: "begun"; readonly claim_id: string }
  | { readonly is: "done"; readonly claim_id: string; readonly outcome: Outcome };

export class Journal {
  readonly #storage: ClientStorage | undefined;

  constructor(storage: ClientStorage | undefined) {
    this.#storage = storage;
  }

  async read(runId: string, callId: string): Promise<Page | undefined> {
    const text = (await this.#storage?.getItem(keyOf(runId, callId))) ?? null;
    return text === null ? undefined : parse(text);
  }

  async write(runId: string, callId: string, page: Page): Promise<void> {
    await this.#storage?.setItem(keyOf(runId, callId), JSON.stringify(page));
  }

  async remove(runId: string, callId: string): Promise<void> {
    await this.#storage?.removeItem(keyOf(runId, callId));
  }
}

function keyOf(runId: string, callId: string): string {
  return `throughline.call.${runId}.${callId}`;
}

/** Only this file writes them; what is not one of them is another version's, and says as much as none. */
function parse(text: string): Page | undefined {
  try {
    const page: unknown = JSON.parse(text);
    return isPage(page) ? page : undefined;
  } catch {
    return undefined;
  }
}

function isPage(value: unknown): value is Page {
  if (typeof value !== "object" || value === null) return false;
  if (!("claim_id" in value) || typeof value.claim_id !== "string" || !("is" in value))
    return false;
  return value.is === "begun" || (value.is === "done" && "outcome" in value);
}
