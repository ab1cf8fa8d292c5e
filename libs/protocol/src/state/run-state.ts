import type { z } from "zod";
import type { runStateSchema } from "./schema.ts";

type DeepReadonly<T> = T extends readonly (infer E)[]
  ? readonly DeepReadonly<E>[]
  : T extends object
    ? { readonly [K in keyof T]: DeepReadonly<T[K]> }
    : T;

/** All that a run's log says, as one JSON value. Never changed in place. */
export type RunState = DeepReadonly<z.infer<typeof runStateSchema>>;
export type RunStatus = RunState["status"];
export type MessageState = RunState["messages"][number];
export type StepState = RunState["steps"][number];
export type ToolCallState = RunState["tool_calls"][number];
export type ApprovalState = RunState["approvals"][number];
export type InputState = RunState["inputs"][number];
export type InboxItem = RunState["inbox"][number];
export type ArtifactState = RunState["artifacts"][number];

/** The state before any event. */
export function initialRunState(runId?: string): RunState {
  return {
    ...(runId === undefined ? {} : { run_id: runId }),
    status: "absent",
    seq: 0,
    attempt: 0,
    idle_attempts: 0,
    tools: [],
    options: {},
    usage: { total: { input_tokens: 0, output_tokens: 0 }, models: {} },
    messages: [],
    steps: [],
    tool_calls: [],
    approvals: [],
    inputs: [],
    inbox: [],
    artifacts: [],
    app: {},
    memory: {},
    applied: {},
    emits: {},
  };
}

/** A message's text as a reader should see it now. */
export function messageText(message: Pick<MessageState, "text" | "live">): string {
  return message.text + message.live;
}

/**
 * Key of a command in `state.applied`. Ids are chosen by clients, so two users may choose the same; a
 * space is in no id, so the two parts cannot run together.
 */
export function appliedKey(commandId: string, user?: string): string {
  return user === undefined ? commandId : `${commandId} ${user}`;
}

/** Whether the log holds an answer to this command. An answer that does not say whose it was counts for everybody. */
export function isApplied(state: RunState, commandId: string, user?: string): boolean {
  return (
    Object.hasOwn(state.applied, appliedKey(commandId)) ||
    (user !== undefined && Object.hasOwn(state.applied, appliedKey(commandId, user)))
  );
}
