import type { LogFilter } from "@throughline/broker";
import { cursorTag } from "@throughline/protocol";
import type { FanoutNode } from "./node.ts";

/** The tag of cursors that have seen nothing: a run's own, or the session's in this stream. */
export class Origin {
  readonly #node: FanoutNode;
  readonly #filter: LogFilter;
  #tag: Promise<string> | undefined;

  constructor(node: FanoutNode, filter: LogFilter, known: string | undefined) {
    this.#node = node;
    this.#filter = filter;
    if (known !== undefined) this.#tag = Promise.resolve(known);
  }

  /** Rejects with BrokerUnavailable; the next who asks tries again. */
  tag(): Promise<string> {
    this.#tag ??= this.#find();
    return this.#tag;
  }

  async #find(): Promise<string> {
    try {
      const { epoch } = await this.#node.reads.run(() => this.#node.log.head(this.#filter));
      return cursorTag(this.#filter.session, epoch);
    } catch (error) {
      this.#tag = undefined;
      throw error;
    }
  }
}
