import type { Publisher } from "../session/port.ts";
import { eventMessage } from "./sse-format.ts";

/** A response that is written to for as long as its client listens. */
export interface TopicMember {
  /** Takes a whole message of the stream. */
  write(message: Uint8Array): unknown;
}

/**
 * Topics for event streams, beside uWebSockets' own, which reach WebSockets only. A stream is in as many
 * as its one subscription needs, and leaves them when it is closed.
 */
export class StreamTopics implements Publisher {
  readonly #members: Map<string, Set<TopicMember>> = new Map();

  publish(topic: string, frame: Uint8Array): void {
    if (this.#members.size === 0) return;
    const members = this.#members.get(topic);
    if (members === undefined) return;
    // Made once, however many streams it goes to.
    const message = eventMessage(frame);
    for (const member of members) member.write(message);
  }

  join(topic: string, member: TopicMember): void {
    const members = this.#members.get(topic);
    if (members) members.add(member);
    else this.#members.set(topic, new Set([member]));
  }

  leave(topic: string, member: TopicMember): void {
    const members = this.#members.get(topic);
    if (members?.delete(member) === true && members.size === 0) this.#members.delete(topic);
  }
}
