import { isLocalOrigin, type RequestOrigin } from "./local.ts";

export interface OriginOptions {
  /** As browsers send them, `https://app.example.org`; `*` for any. */
  readonly allowed: readonly string[];
  /** Local mode: pages that this machine serves may. */
  readonly local: boolean;
}

export const ORIGIN_REFUSED =
  "pages of this origin may not use this node: TL_ALLOWED_ORIGINS lists those that may";

/**
 * Pages of which origins may use this node: asked by every door, and what CORS says is the same decision.
 * Browsers alone send `Origin`, and cannot be made to lie about it by a page; a program that sends none is
 * judged by its credentials alone.
 */
export class Origins {
  readonly #allowed: ReadonlySet<string>;
  readonly #local: boolean;

  constructor({ allowed, local }: OriginOptions) {
    this.#allowed = new Set(allowed.map((origin) => origin.toLowerCase()));
    this.#local = local;
  }

  /** Whether a request with these headers may be taken, as far as its origin goes. */
  allows({ headers }: Pick<RequestOrigin, "headers">): boolean {
    const origin = headers.get("origin");
    if (origin === undefined || this.#allowed.has("*")) return true;
    return this.#allowed.has(origin.toLowerCase()) || (this.#local && isLocalOrigin(origin));
  }
}

/** What an entry of the allow-list looks like: `*`, or scheme, host and maybe port, nothing behind. */
export function isOriginEntry(text: string): boolean {
  if (text === "*") return true;
  // A URL may have a star in its name; here it would look like a pattern, and be none.
  if (text.includes("*") || !URL.canParse(text)) return false;
  const url = new URL(text);
  return ["http:", "https:"].includes(url.protocol) && url.origin === text.toLowerCase();
}
