/** A call that this worker executes: approved where it must be, told to be running before it is. */
import { EventTooLarge } from "@throughline/broker";
import type { ToolCallState } from "@throughline/protocol";
import type { ApprovalRequest, Tool, ToolContext } from "../agent.ts";
import { asStored } from "../as-stored.ts";
import { armTimer } from "../deadline.ts";
import { AgentError, failureOf, type Failure, inputFailure } from "../failure.ts";
import { Place } from "../operation-key.ts";
import type { ScopeRun } from "../scope-run.ts";
import { askApproval } from "./approval.ts";
import { about, type Call, failed, failureFor } from "./call.ts";
import { keptResult } from "./kept.ts";

/** A piece of a tool's output, or word of it, that goes out at once. */
const MAX_PROGRESS = 8_192;

/** `held`: the call as an earlier execution has left it. Resolves when the outcome is stored. */
export async function executeHere(
  run: ScopeRun,
  call: Call,
  tool: Tool,
  held: ToolCallState | undefined,
): Promise<void> {
  const wasRunning = held?.status === "running";
  if (wasRunning && !tool.idempotent) {
    const text = "its worker was lost while it ran: whether it took effect is not known";
    return failed(run, call, failureFor("outcome_unknown", text));
  }
  // What the log has, somebody may have approved already.
  const args = held ? held.args : (asStored(call.args) ?? null);
  let parsed: unknown;
  let description: string | undefined;
  try {
    parsed = tool.parse(args);
    description = tool.approval?.description(parsed);
  } catch (error) {
    return failed(run, call, inputFailure(error));
  }
  if (tool.approval && description !== undefined && !wasRunning) {
    const refused = await denial(run, call, args, { ...tool.approval, description });
    if (refused) return failed(run, call, refused);
  }
  // A call in a step is part of it. Others are held here: a worker that is about to stop begins none.
  if (call.stepId === undefined) await run.gate.enter(run.signal);
  try {
    // Stored before it begins: a worker that has lost the run cannot begin it.
    const payload = { tool_call_id: call.callId, status: "running" as const };
    await run.lane.append(about(call, { type: "tool_call.status", payload }));
    await complete(run, call, await outcomeOf(run, call, tool, parsed));
  } finally {
    if (call.stepId === undefined) run.gate.leave();
  }
}

async function denial(
  run: ScopeRun,
  call: Call,
  args: unknown,
  approval: Pick<ApprovalRequest, "risk" | "description"> & { expiresInMs: number | undefined },
): Promise<Failure | undefined> {
  const { decision, expired, by, reason } = await askApproval(
    run,
    { place: new Place(call.key), stepId: call.stepId },
    {
      operation: call.name,
      description: approval.description,
      risk: approval.risk ?? "medium",
      args,
      tool_call_id: call.callId,
      ...(approval.expiresInMs === undefined ? {} : { expiresInMs: approval.expiresInMs }),
    },
  );
  if (decision === "allow") return undefined;
  if (expired) return failureFor("approval_expired", "nobody has approved it in time");
  const who = by === undefined ? "denied" : `denied by ${by}`;
  return failureFor("denied", reason === undefined ? who : `${who}: ${reason}`);
}

type Outcome =
  | { readonly ok: true; readonly result: unknown }
  | { readonly ok: false; readonly error: Failure };

/** Executes the tool's function. Rejects with RunStopped once the run was stopped: then nobody knows. */
async function outcomeOf(run: ScopeRun, call: Call, tool: Tool, args: unknown): Promise<Outcome> {
  const timeoutMs = call.timeoutMs ?? tool.timeoutMs;
  const abort = new AbortController();
  const stop = (): void => abort.abort(run.signal.reason);
  run.signal.addEventListener("abort", stop, { once: true });
  const timeout = (): void =>
    abort.abort(
      new AgentError("tool_timeout", `it has taken longer than ${timeoutMs} ms`, {
        retryable: true,
      }),
    );
  const timer = timeoutMs === undefined ? undefined : armTimer(run.now() + timeoutMs, timeout);
  try {
    const result = await beforeAbort(tool.run(args, contextOf(run, call, abort.signal)), abort);
    return { ok: true, result: asStored(result) ?? null };
  } catch (error) {
    run.signal.throwIfAborted();
    if (error instanceof AgentError) return { ok: false, error: failureOf(error) };
    run.log.info({ err: error, tool: call.name, call: call.callId }, "a tool failed");
    return { ok: false, error: failureFor("tool_error", failureOf(error).message) };
  } finally {
    timer?.disarm();
    run.signal.removeEventListener("abort", stop);
    // What still goes on in it is over: its outcome is known.
    abort.abort(new AgentError("ended", "the call has its outcome"));
  }
}

/** A function that does not heed its signal is left behind. */
async function beforeAbort(
  running: Promise<unknown>,
  { signal }: AbortController,
): Promise<unknown> {
  let aborted = (): void => undefined;
  const cut = new Promise<never>((_, reject) => {
    aborted = () => reject(signal.reason);
    if (signal.aborted) aborted();
    signal.addEventListener("abort", aborted, { once: true });
  });
  try {
    return await Promise.race([running, cut]);
  } finally {
    signal.removeEventListener("abort", aborted);
  }
}

function contextOf(run: ScopeRun, call: Call, signal: AbortSignal): ToolContext {
  return {
    run_id: run.ref.run,
    tool_call_id: call.callId,
    signal,
    progress: ({ fraction, message, output }) => {
      if (signal.aborted) return;
      run.ephemeral({
        type: "tool_call.progress",
        ...(call.stepId === undefined ? {} : { step_id: call.stepId }),
        payload: {
          tool_call_id: call.callId,
          ...(fraction === undefined ? {} : { fraction: Math.min(1, Math.max(0, fraction)) }),
          ...(message === undefined ? {} : { message: message.slice(0, MAX_PROGRESS) }),
          ...(output === undefined ? {} : { output: output.slice(0, MAX_PROGRESS) }),
        },
      });
    },
    log: run.log,
  };
}

async function complete(run: ScopeRun, call: Call, outcome: Outcome): Promise<void> {
  if (!outcome.ok) return failed(run, call, outcome.error);
  const result = (await keptResult(run, outcome.result)) ?? null;
  const payload = { tool_call_id: call.callId, result };
  try {
    await run.lane.append(about(call, { type: "tool_call.completed", payload }));
  } catch (error) {
    if (!(error instanceof EventTooLarge)) throw error;
    await failed(run, call, failureFor("output_too_large", error.message));
  }
}
