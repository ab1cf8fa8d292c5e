import { parseCursor } from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import type { Attachment } from "../fanout/attach.ts";
import type { Subscriber } from "../fanout/place.ts";
import type { Happening, SubscribeRequest } from "./life.ts";
import type { OutgoingFrame } from "./port.ts";
import { subscribe, type SubscribeServices } from "./subscribe.ts";

type CursorFault = "is no cursor" | "is ahead of what was sent" | "is of no event that was sent";

/** Where the subscriptions of one connection are attached. Their number is bounded by the connection's state. */
export class Attachments {
  readonly #services: SubscribeServices;
  readonly #principal: Principal;
  readonly #byId: Map<string, Attachment> = new Map();

  constructor(services: SubscribeServices, principal: Principal) {
    this.#services = services;
    this.#principal = principal;
  }

  /** Begins a subscription, and says what has become of it. Never rejects. */
  async begin(
    subscriber: Subscriber,
    request: SubscribeRequest,
    isWanted: () => boolean,
  ): Promise<readonly Happening[]> {
    const { subscriptionId: id } = subscriber;
    const begun = await subscribe(this.#services, this.#principal, request, subscriber, isWanted);
    switch (begun.kind) {
      case "attached":
        if (!isWanted()) {
          begun.attachment.detach();
          return [];
        }
        this.#byId.set(id, begun.attachment);
        return [{ kind: "subscribed", id }];
      case "ended":
        return [
          { kind: "subscribed", id },
          { kind: "ended", id, reason: "run_ended" },
        ];
      case "refused": {
        const { code, message, retryAfterMs } = begun.refusal;
        const retry = retryAfterMs === undefined ? {} : { retry_after_ms: retryAfterMs };
        const asked = request.commandId === undefined ? {} : { id: request.commandId };
        const frame: OutgoingFrame = { type: "error", code, message, ...asked, ...retry };
        return [{ kind: "refused", id, frame }];
      }
      case "over":
      case "unwanted":
        return [];
    }
  }

  end(id: string): void {
    this.#byId.get(id)?.detach();
    this.#byId.delete(id);
  }

  /** What an acknowledgement has come to; else what is wrong with its cursor. */
  acknowledge(id: string, text: string): "freed" | "behind" | CursorFault {
    const cursor = parseCursor(text);
    if (cursor === undefined) return "is no cursor";
    const { kind } = this.#byId.get(id)?.acknowledge(cursor) ?? { kind: "ahead" };
    if (kind === "ahead") return "is ahead of what was sent";
    return kind === "foreign" ? "is of no event that was sent" : kind;
  }

  drained(): void {
    for (const attachment of this.#byId.values()) attachment.drained();
  }

  /** Whether any waits for the socket. */
  get areStuck(): boolean {
    for (const attachment of this.#byId.values()) if (attachment.isStuck) return true;
    return false;
  }

  /** When topics last brought something: a publish tells no connection of it. */
  get publishedAt(): number {
    let last = 0;
    for (const { place, hub } of this.#byId.values()) {
      if (place.at === "live") last = Math.max(last, hub.publishedAt);
    }
    return last;
  }
}
