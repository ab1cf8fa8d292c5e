/**
 * What the agent makes of answers to its inputs. Only the agent that asked can tell, so an answer that
 * comes while nobody is there to ask waits for it a little.
 */

/** Says what is wrong with an input's content, or nothing. */
export type Check = (content: unknown) => string | undefined;

export class InputChecks {
  readonly #checks: Map<string, Check> = new Map();
  readonly #awaited: Map<string, () => void> = new Map();

  /** From now on until the result is called. */
  set(inputId: string, check: Check): () => void {
    this.#checks.set(inputId, check);
    this.#awaited.get(inputId)?.();
    return () => {
      if (this.#checks.get(inputId) === check) this.#checks.delete(inputId);
    };
  }

  has(inputId: string): boolean {
    return this.#checks.has(inputId);
  }

  /** Says what is wrong with an input's content, or nothing: also where nobody can tell. */
  problem(inputId: string, content: unknown): string | undefined {
    return this.#checks.get(inputId)?.(content);
  }

  /** Resolves when there is a check of that input, or the signal is aborted. For one input at a time. */
  async until(inputId: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.has(inputId)) return;
    await new Promise<void>((resolve) => {
      this.#awaited.set(inputId, resolve);
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
    this.#awaited.delete(inputId);
  }
}
