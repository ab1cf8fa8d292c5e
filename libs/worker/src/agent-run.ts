/** Executes an agent in its context. */
import type { EventPayload, RunState } from "@throughline/protocol";
import type { Agent, RunContext } from "./agent.ts";
import { asStored } from "./as-stored.ts";
import type { Ending } from "./ending.ts";
import { failureOf, inputFailure } from "./failure.ts";
import type { Log } from "./log.ts";
import type { ScopeRun } from "./scope-run.ts";
import { runScope } from "./scope.ts";
import { sessionOf } from "./session.ts";

/**
 * Never rejects: how the agent ended is the run's ending, unless something else stopped the run first.
 * `state`: as stored; what was cut short is closed in it.
 */
export async function runAgent(run: ScopeRun, agent: Agent, state: RunState): Promise<Ending> {
  const { log } = run;
  let body: ReturnType<Agent["prepare"]>;
  try {
    body = agent.prepare(await run.whole(state.input));
  } catch (error) {
    log.info({ err: error }, "the agent does not take the input");
    return { kind: "failed", failure: inputFailure(error), by: "agent" };
  }
  try {
    return { kind: "completed", output: asStored(await body(contextOf(run, state))) };
  } catch (error) {
    // The stack is for the operator; clients get code and message.
    if (!run.signal.aborted) log.warn({ err: error }, "the agent failed");
    return { kind: "failed", failure: failureOf(error), by: "agent" };
  }
}

function contextOf(run: ScopeRun, state: RunState): Omit<RunContext, "input"> {
  return {
    ...runScope(run),
    run_id: run.ref.run,
    session_id: run.ref.session,
    attempt: run.attempt,
    options: state.options,
    session: sessionOf(run, state),
    signal: run.signal,
    log: shownLog(run),
  };
}

const MAX_SHOWN = 2_000;

/** Logs, and lets those who watch the run see it. Debug lines are the operator's alone. */
function shownLog(run: Pick<ScopeRun, "log" | "ephemeral">): Log {
  const { log } = run;
  const show =
    (level: Exclude<EventPayload<"log">["level"], "debug">): Log["info"] =>
    (fields, message) => {
      log[level](fields, message);
      run.ephemeral({
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
