/** A run with all that a device can be asked for, and the device that answers it. */
import type { Frame } from "./raw-client.ts";
import type { Script } from "./script.ts";

/**
 * Two tools at once (a device's and the worker's), an approval, an input request, steps, 3 messages.
 *
 * @param mark tells what this run does to the world outside from what others do
 */
export const tour = (mark: string): Script => ({
  pace_ms: 8,
  do: [
    { op: "say", text: "Hello. " },
    {
      op: "step",
      name: "plan",
      do: [
        { op: "say", text: "thinking", channel: "reasoning" },
        {
          op: "tools",
          calls: [
            { name: "double", args: { n: 21, mark } },
            { name: "look", args: { at: "the window" } },
          ],
        },
      ],
    },
    { op: "approval", operation: "publish" },
    { op: "input", prompt: "Where to?" },
    { op: "step", name: "publish", do: [{ op: "emit", name: "published" }] },
    { op: "say", text: "Done." },
  ],
});

/** What the device offers for it. */
export const TOUR_TOOLS = [{ name: "look" }];

/** The command that answers an event, if it asks for anything; its id derives from the event, so that it can be sent again. */
export function answerTo(
  event: Frame,
): ({ type: string; id: string } & Record<string, unknown>) | undefined {
  const { payload = {}, run_id, session_id } = event;
  const to = { session_id, run_id, reply_to: event["event_id"] };
  switch (event.type) {
    case "tool_call.created":
      if (payload["executor"] !== "client") return undefined;
      return {
        type: "tool_result.report",
        id: `report-${String(payload["tool_call_id"])}`,
        ...to,
        payload: { tool_call_id: payload["tool_call_id"], result: { seen: payload["args"] } },
      };
    case "approval.requested":
      return {
        type: "approval.respond",
        id: `decide-${String(payload["approval_id"])}`,
        ...to,
        payload: {
          approval_id: payload["approval_id"],
          decision: "allow",
          args_hash: payload["args_hash"],
        },
      };
    case "input.requested":
      return {
        type: "input.respond",
        id: `say-${String(payload["input_id"])}`,
        ...to,
        payload: { input_id: payload["input_id"], content: "home" },
      };
    default:
      return undefined;
  }
}
