/** Lets a run stop between two steps: while draining, steps of the run itself end and no new one begins. */
export class DrainGate {
  readonly #onBoundary: () => void;
  #draining = false;
  #running = 0;
  #waiting = 0;

  /** `onBoundary`: a step wants to begin, and no other is running. The best moment to hand the run on. */
  constructor(onBoundary: () => void) {
    this.#onBoundary = onBoundary;
  }

  drain(): void {
    this.#draining = true;
    this.#look();
  }

  /**
   * Before a step of the run itself (steps inside others belong to those). Resolves when it may begin;
   * while draining that is never: it rejects with the signal's reason once the run has been stopped.
   */
  async enter(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (!this.#draining) {
      this.#running++;
      return;
    }
    this.#waiting++;
    const stopped = new Promise<never>((_, reject) => {
      const stop = (): void => {
        reject(
          signal.reason instanceof Error
            ? signal.reason
            : new Error("stopped", { cause: signal.reason }),
        );
      };
      signal.addEventListener("abort", stop, { once: true });
    });
    this.#look();
    return stopped;
  }

  /** The agent waits for somebody, until the result is called: nothing is cut short where no step is running. */
  wait(): () => void {
    this.#waiting++;
    this.#look();
    return () => {
      this.#waiting--;
    };
  }

  leave(): void {
    this.#running--;
    this.#look();
  }

  #look(): void {
    if (this.#draining && this.#running === 0 && this.#waiting > 0) this.#onBoundary();
  }
}
