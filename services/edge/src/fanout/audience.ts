import type { Attachment } from "./attach.ts";
import type { Entry } from "./frame.ts";
import type { Turn } from "./turn.ts";

/** The clients of a hub: all of them, those on its topics, and those who wait for it to move. */
export class Audience {
  readonly #turn: Turn;
  readonly #all: Set<Attachment> = new Set();
  readonly #live: Set<Attachment> = new Set();
  /** Paced ones that are level with the hub, or ahead of it. */
  readonly #atHead: Set<Attachment> = new Set();

  constructor(turn: Turn) {
    this.#turn = turn;
  }

  get hasLive(): boolean {
    return this.#live.size > 0;
  }

  attach(attachment: Attachment): void {
    this.#all.add(attachment);
  }

  detach(attachment: Attachment): void {
    this.#all.delete(attachment);
    this.#live.delete(attachment);
    this.#atHead.delete(attachment);
  }

  goLive(attachment: Attachment): void {
    this.#live.add(attachment);
  }

  leaveLive(attachment: Attachment): void {
    this.#live.delete(attachment);
  }

  /** It has nothing to read until the hub moves. */
  awaitMove(attachment: Attachment): void {
    this.#atHead.add(attachment);
  }

  moved(): void {
    if (this.#atHead.size === 0) return;
    for (const attachment of this.#atHead) this.#turn.due(attachment);
    this.#atHead.clear();
  }

  look(): void {
    for (const attachment of this.#live) attachment.look();
  }

  /** More has come than may wait for a turn: live clients read it at their own pace instead. */
  leaveBehind(): void {
    for (const attachment of [...this.#live]) attachment.fallBehind();
  }

  /**
   * Not by the topic: clients that were fed from the log while the tail was without this message
   * have it already.
   */
  missed(entry: Entry): void {
    for (const attachment of [...this.#all]) attachment.missed(entry);
  }

  ended(): void {
    for (const attachment of this.#live) this.#turn.due(attachment);
  }

  lost(error: Error): void {
    for (const attachment of [...this.#all]) attachment.lost(error);
  }
}
