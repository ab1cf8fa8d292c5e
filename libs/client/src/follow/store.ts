/** A value that can be watched, in the shape that stores are asked for (React's `useSyncExternalStore`). */
export class Store<S> {
  #value: S;
  readonly #listeners = new Set<() => void>();

  constructor(value: S) {
    this.#value = value;
  }

  readonly getSnapshot = (): S => this.#value;

  readonly subscribe = (listener: () => void): (() => void) => {
    // Wrapped, so that one function given twice is two subscriptions.
    const entry = (): void => listener();
    this.#listeners.add(entry);
    return () => void this.#listeners.delete(entry);
  };

  set(value: S): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of this.#listeners) callOut(listener);
  }
}

/**
 * Calls the application's code. What it throws is its own uncaught exception: thrown here it would cut
 * off, between two events, the work for everybody else on the connection.
 */
export function callOut(callback: () => void): void {
  try {
    callback();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
