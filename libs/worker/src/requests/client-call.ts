/** A call that a client executes, from the agent's side: waited for, freed when its claim lapses. */
import type { RunState, ToolCallState } from "@throughline/protocol";
import type { ScopeRun } from "../scope-run.ts";
import { about, type Call, failed, failureFor, findCall } from "./call.ts";
import { isSettled, liveClaim } from "./call-verdicts.ts";
import { settled } from "./settled.ts";

/** The call's event was appended just now, or is in the log. Resolves when its outcome is stored. */
export async function awaitClient(run: ScopeRun, call: Call): Promise<void> {
  const { callId, timeoutMs } = call;
  const endsAt = timeoutMs === undefined ? Infinity : run.now() + timeoutMs;
  const heard = run.busy("tools");
  try {
    await settled(run, {
      look: (state) => {
        const held = findCall(state, callId);
        return held && isSettled(held) ? held : undefined;
      },
      dueAt: (state) => Math.min(endsAt, lapsesAt(state, callId)),
      decide: async (state) => {
        const held = findCall(state, callId);
        if (run.now() >= endsAt) {
          const text = `no client has reported an outcome within ${timeoutMs} ms`;
          await failed(run, call, failureFor("tool_timeout", text));
        } else if (held && !liveClaim(held, run.now())) {
          await run.lane.append(
            about(call, {
              type: "tool_call.status",
              payload: { tool_call_id: callId, status: "pending" },
            }),
          );
        }
      },
    });
  } finally {
    heard();
  }
}

/** The first millisecond in which the claim does not hold any more. */
function lapsesAt(state: RunState, callId: string): number {
  const held: ToolCallState | undefined = findCall(state, callId);
  if (held?.status !== "claimed") return Infinity;
  return (held.claim?.expires_at ?? Infinity) + 1;
}
