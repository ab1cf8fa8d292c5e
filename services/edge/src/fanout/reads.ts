/** At most `limit` log reads of the node at a time; the others wait their turn. */
export class Reads {
  readonly #limit: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  async run<T>(read: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#limit) await new Promise<void>((go) => this.#waiting.push(go));
    else this.#running += 1;
    try {
      return await read();
    } finally {
      // The place is handed on, not given back: else a newcomer could take it first.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
  }
}
