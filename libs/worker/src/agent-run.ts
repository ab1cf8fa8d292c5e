/** Executes an agent in its context. */
import type { RunWriter } from "@throughline/broker";
import type { EventPayload, RunState } from "@throughline/protocol";
import type { Agent, RunContext } from "./agent.ts";
import type { Ending } from "./ending.ts";
import { failureOf, inputFailure } from "./failure.ts";
import type { Log } from "./log.ts";
import { asStored, runScope, type ScopeRun } from "./scope.ts";

export interface AgentRunOptions extends ScopeRun {
  readonly agent: Agent;
  /** As recovered; what cut-short attempts left open is superseded in it. */
  readonly state: RunState;
  readonly run: string;
  readonly session: string;
  readonly writer: Pick<RunWriter, "ephemeral">;
  readonly log: Log;
}

/** Never rejects: how the agent ended is the run's ending, unless something else stopped the run first. */
export async function runAgent(options: AgentRunOptions): Promise<Ending> {
  const { agent, state, log } = options;
  let body: ReturnType<Agent["prepare"]>;
  try {
    body = agent.prepare(state.input);
  } catch (error) {
    log.info({ err: error }, "the agent does not take the input");
    return { kind: "failed", failure: inputFailure(error), by: "agent" };
  }
  try {
    return { kind: "completed", output: asStored(await body(contextOf(options))) };
  } catch (error) {
    // The stack is for the operator; clients get code and message.
    if (!options.signal.aborted) log.warn({ err: error }, "the agent failed");
    return { kind: "failed", failure: failureOf(error), by: "agent" };
  }
}

function contextOf(options: AgentRunOptions): Omit<RunContext, "input"> {
  const { state, attempt, signal } = options;
  return {
    ...runScope(options),
    run_id: options.run,
    session_id: options.session,
    attempt,
    options: state.options,
    signal,
    log: shownLog(options.log, options.writer),
  };
}

const MAX_SHOWN = 2_000;

/** Logs, and lets those who watch the run see it. Debug lines are the operator's alone. */
function shownLog(log: Log, writer: Pick<RunWriter, "ephemeral">): Log {
  const show =
    (level: Exclude<EventPayload<"log">["level"], "debug">): Log["info"] =>
    (fields, message) => {
      log[level](fields, message);
      writer.ephemeral({
        type: "log",
        payload: { level, message: message.slice(0, MAX_SHOWN), ...shownFields(fields) },
      });
    };
  return {
    debug: (fields, message) => log.debug(fields, message),
    info: show("info"),
    warn: show("warn"),
    error: show("error"),
  };
}

/** Plain values only: an error's stack, a socket or a megabyte has no place on the wire. */
function shownFields(fields: Readonly<Record<string, unknown>>): {
  fields?: Record<string, unknown>;
} {
  const shown: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === "string") shown[name] = value.slice(0, MAX_SHOWN);
    else if (typeof value === "boolean" || Number.isFinite(value)) shown[name] = value;
  }
  return Object.keys(shown).length > 0 ? { fields: shown } : {};
}
