/** Stores what a command has done; a command that no event has room for is refused. */
import { EventTooLarge } from "@throughline/broker";
import type { NewEvent } from "@throughline/protocol";
import { refused } from "../answers.ts";
import type { RunLog } from "../run-log.ts";
import { type KeptBy, keptResults } from "./kept.ts";

/**
 * Resolves when the answer is stored: true for the events, false for a refusal. A frame that is just legal
 * may make an event that is not, and a command without an answer would come again to every worker.
 */
export async function storeAnswer(
  log: Pick<RunLog, "appendAll">,
  by: KeptBy,
  events: readonly NewEvent[],
  cmd: number,
): Promise<boolean> {
  try {
    await log.appendAll(await keptResults(by, events), cmd);
    return true;
  } catch (error) {
    if (!(error instanceof EventTooLarge)) throw error;
    const { reply_to: id, reply_by: user } = events.find((event) => event.reply_to) ?? {};
    if (id === undefined || user === undefined) throw error;
    await log.appendAll([refused({ id, user }, "too_large", undefined)], cmd);
    return false;
  }
}
