/** Durable operations: each is found by its key in what earlier executions have stored, or done and stored. */
import type { NewEvent } from "@throughline/protocol";
import { handled } from "./agent-lane.ts";
import type { RecordedToolCall, Scope } from "./agent.ts";
import { inboxOf } from "./inbox.ts";
import { OpenMessages, storedMessage } from "./message.ts";
import { operationId, Place } from "./operation-key.ts";
import { askApproval } from "./requests/approval.ts";
import { askInput } from "./requests/input.ts";
import { availableTools, callTools } from "./requests/tools.ts";
import type { CallSite, ScopeRun } from "./scope-run.ts";
import { runStep } from "./step.ts";

interface Opened {
  readonly scope: Scope;
  readonly messages: OpenMessages;
}

/** The scope of the run itself. Its messages outlive takeovers: whole ones are kept, the others begin anew. */
export function runScope(run: ScopeRun): Scope {
  return openScope(run, new Place()).scope;
}

function openScope(run: ScopeRun, place: Place, stepId?: string): Opened {
  const { lane } = run;
  const messages = new OpenMessages();
  const within = stepId === undefined ? {} : { step_id: stepId };
  const here: CallSite = { place, stepId };

  /** An update of the state that takes its time: what is counted is told apart by its number alone, so it waits. */
  let held: Promise<unknown> | undefined;
  const counted = async (append: (at: { readonly key: string }) => Promise<unknown>) => {
    const refusal = lane.refusal();
    if (refusal) return refusal;
    const { key, scope, n } = place.nextUnnamed("@emit");
    if (n <= run.done.emitted(scope)) return;
    const stored = held === undefined ? append({ key }) : held.then(() => append({ key }));
    if (held !== undefined || run.app.isSlow) {
      const mine = stored.catch(() => undefined);
      held = mine;
      void mine.then(() => {
        if (held === mine) held = undefined;
      });
    }
    await stored;
  };
  const appended =
    (event: NewEvent) =>
    (at: { readonly key: string }): Promise<unknown> =>
      lane.append({ ...event, ...within, ...at });

  const record = async ({ name, args, result }: RecordedToolCall): Promise<void> => {
    const refusal = lane.refusal();
    if (refusal) return refusal;
    const { key } = place.nextUnnamed("@tool");
    const held = run.done.toolCall(key);
    if (held?.status === "completed" || held?.status === "failed") return;
    const callId = held?.tool_call_id ?? operationId("tc", key);
    if (!held) {
      void lane.append({
        type: "tool_call.created",
        ...within,
        key,
        payload: {
          tool_call_id: callId,
          name,
          args: args ?? null,
          executor: "worker",
          requires_approval: false,
        },
      });
    }
    await lane.append({
      type: "tool_call.completed",
      ...within,
      payload: { tool_call_id: callId, result: (await run.keep(result)) ?? null },
    });
  };

  const scope: Scope = {
    emit: (name, value) =>
      handled(counted(appended({ type: "custom", payload: { name, value: value ?? null } }))),
    setState: (patch) =>
      handled(
        counted((at) =>
          run.app.set(patch ?? null, async (payload) => {
            await lane.append({ type: "state.updated", ...within, ...at, payload });
          }),
        ),
      ),
    // What a step spends, it spends again when it is done again. Code outside of steps is only executed
    // again to find its way, so there it is counted like everything else.
    usage: (payload) =>
      handled(
        stepId === undefined
          ? counted(appended({ type: "usage.updated", payload }))
          : lane.append({ type: "usage.updated", ...within, payload }).then(() => undefined),
      ),
    message: (options = {}) => {
      lane.check();
      const { key } = place.nextUnnamed("@message");
      if (run.done.hasMessage(key)) return storedMessage(lane);
      return messages.open(lane, {
        key,
        messageId: operationId("msg", key, stepId),
        stepId,
        options,
      });
    },
    step: (name, body, options = {}) =>
      handled(
        runStep(run, place, {
          name,
          body,
          options,
          parent: stepId,
          open: (inside, id) => openScope(run, inside, id),
        }),
      ),
    approval: (request) => handled(askApproval(run, here, request)),
    ask: (request) => handled(askInput(run, here, request)),
    inbox: inboxOf(run, here),
    tools: {
      available: availableTools(run),
      call: (calls, options = {}) => callTools(run, here, calls, options),
      record: (call) => handled(record(call)),
    },
  };
  return { scope, messages };
}
