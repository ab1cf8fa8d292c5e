export interface EventuallyOptions {
  /** Milliseconds until it gives up (10,000). */
  timeoutMs?: number;
  /** Milliseconds between two looks (10). */
  everyMs?: number;
  /** What is waited for, for the error's text. */
  what?: string | (() => string);
}

/**
 * Waits until `condition` gives a truthy value, and returns that.
 *
 * A throw counts as "not yet", so assertions may stand in it. Rejects after `timeoutMs`; the `cause`
 * is the last thing thrown.
 */
export async function eventually<T>(
  condition: () => T | Promise<T>,
  options: EventuallyOptions = {},
): Promise<Exclude<T, false | 0 | "" | null | undefined | void>> {
  const { timeoutMs = 10_000, everyMs = 10 } = options;
  const deadline = performance.now() + timeoutMs;
  let last: unknown;
  for (;;) {
    try {
      const value = await condition();
      if (value) return value as Exclude<T, false | 0 | "" | null | undefined | void>;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (performance.now() >= deadline) {
      const what = typeof options.what === "function" ? options.what() : options.what;
      const reason = last instanceof Error ? `: ${last.message}` : "";
      throw new Error(
        `not within ${timeoutMs} ms: ${what ?? condition.toString().slice(0, 200)}${reason}`,
        {
          cause: last,
        },
      );
    }
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
