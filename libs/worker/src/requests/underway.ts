/**
 * What an execution has asked for and not heard of yet. A step that is tried again while something of its
 * earlier try goes on must not begin it a second time, and the log may not hold it yet.
 */
export class Underway<T> {
  readonly #all: Map<string, Promise<T>> = new Map();

  /** What goes on under this id, or else begins it. Once it is over the log knows of it. */
  join(id: string, begin: () => Promise<T>): Promise<T> {
    const held = this.#all.get(id);
    if (held) return held;
    const begun = begin().finally(() => this.#all.delete(id));
    this.#all.set(id, begun);
    return begun;
  }
}
