/** What is missing in the flow, and how often it was asked for. One at a time: nothing later is taken meanwhile. */
interface Hole {
  readonly run: string;
  readonly repairs: number;
}

export class Holes {
  #hole: Hole | undefined;

  /** An event of this run is missing (still). Returns how often it has been asked for, this time included. */
  missing(run: string): number {
    const repairs = this.asked(run) + 1;
    this.#hole = { run, repairs };
    return repairs;
  }

  filled(run: string): void {
    if (this.#hole?.run === run) this.#hole = undefined;
  }

  /** How often what is missing of this run has been asked for. */
  asked(run: string): number {
    return this.#hole?.run === run ? this.#hole.repairs : 0;
  }
}
