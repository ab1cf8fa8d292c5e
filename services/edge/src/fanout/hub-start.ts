import type { LogFilter, LogMessage } from "@throughline/broker";
import { cursorTag } from "@throughline/protocol";
import type { EventSource } from "./log.ts";

/** Where a hub begins: the last stored message of its filter, or the stream's head where there is none. */
export type HubStart =
  | { readonly kind: "message"; readonly message: LogMessage }
  | { readonly kind: "empty"; readonly streamSeq: number; readonly tag: string };

/**
 * The head first, then the leader's "nothing": so nothing of the filter can lie at or below the head.
 * Undefined for a run of which nothing is stored. Rejects with BrokerUnavailable.
 */
export async function findHubStart(
  log: EventSource,
  filter: LogFilter,
): Promise<HubStart | undefined> {
  const near = await log.last(filter, "replica");
  if (near) return { kind: "message", message: near };
  const head = filter.kind === "session" ? await log.head(filter) : undefined;
  const message = await log.last(filter, "leader");
  if (message) return { kind: "message", message };
  if (head === undefined) return undefined;
  const tag = cursorTag(filter.session, head.epoch);
  return { kind: "empty", streamSeq: head.streamSeq, tag };
}
