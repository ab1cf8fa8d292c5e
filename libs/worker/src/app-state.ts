/**
 * The application's own state (`ctx.setState`). A patch that is small goes into its event as it is. A large
 * one, and any on a state that is an object already, becomes the whole state anew, kept as an object where it
 * is large: who reduces the events would otherwise have to fetch it to patch it.
 */
import { isArtifactRef } from "@throughline/broker";
import { type EventPayload, MAX_INLINE_BYTES, mergePatch } from "@throughline/protocol";
import { asStored } from "./as-stored.ts";
import type { ScopeRun } from "./scope-run.ts";

type Update = EventPayload<"state.updated">;
type Append = (update: Update) => Promise<void>;

export class AppState {
  readonly #run: Pick<ScopeRun, "ledger" | "keep" | "whole">;
  /** Settled when the last update that was asked for is stored. */
  #last: Promise<void> = Promise.resolve();
  /** Updates that wait for those before them. */
  #waiting = 0;

  constructor(run: Pick<ScopeRun, "ledger" | "keep" | "whole">) {
    this.#run = run;
  }

  /** Whether an update is on its way that takes more than its append. */
  get isSlow(): boolean {
    return this.#waiting > 0;
  }

  /** Updates take effect in the order in which they are asked for. Resolves when this one is stored. */
  set(patch: unknown, append: Append): Promise<void> {
    const isPlain = !this.isSlow && !isArtifactRef(this.#run.ledger.state.app) && fits(patch);
    const mine = isPlain ? append({ patch }) : this.#whole(patch, append, this.#last);
    this.#last = Promise.allSettled([this.#last, mine]).then(() => undefined);
    return mine;
  }

  async #whole(patch: unknown, append: Append, before: Promise<void>): Promise<void> {
    this.#waiting += 1;
    try {
      await before;
      const state = mergePatch(await this.#run.whole(this.#run.ledger.state.app), asStored(patch));
      await append({ state: (await this.#run.keep(state)) ?? null });
    } finally {
      this.#waiting -= 1;
    }
  }
}

/** What is no JSON fits as well: the lane refuses it with the reason. */
function fits(patch: unknown): boolean {
  try {
    const json: string | undefined = JSON.stringify(patch);
    if (json === undefined || json.length * 3 <= MAX_INLINE_BYTES) return true;
    return Buffer.byteLength(json) <= MAX_INLINE_BYTES;
  } catch {
    return true;
  }
}
