import { bodyHash, deriveRunId, type RunEntry } from "@throughline/broker";
import {
  type CommandOf,
  cursorTag,
  type EventPayload,
  formatCursor,
  MAX_EVENT_BYTES,
} from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import { authorised } from "./authorised.ts";
import { conflict, type Outcome, refusal } from "./outcome.ts";
import type { CommandServices } from "./services.ts";

export async function startRun(
  services: CommandServices,
  principal: Principal,
  command: CommandOf<"run.start">,
): Promise<Outcome> {
  const { id, session_id: session, payload } = command;
  const allowed = await authorised(services, principal, "run.start", session);
  if (!allowed.ok) return allowed;
  const { tenant } = principal;
  const input = (await services.offload({ tenant, session }, payload.input)) ?? payload.input;
  const options = { ...allowed.record.options, ...payload.options };
  return storeRun(services, principal, {
    id,
    session,
    // Of what the client sent: the session's defaults may be others by the time of a retry.
    hash: bodyHash({ type: command.type, session_id: session, payload }),
    payload: { ...payload, input, ...(Object.keys(options).length === 0 ? {} : { options }) },
  });
}

/** A run to be stored, by whatever command. */
export interface NewRun {
  /** Of the command: the run's id derives from it. */
  readonly id: string;
  readonly session: string;
  readonly hash: string;
  readonly payload: Omit<EventPayload<"run.queued">, "by" | "deadline">;
}

/** What an event has besides its payload: ids, times, names. */
const ENVELOPE_BYTES = 1_024;

/** One write starts a run: `run.queued` is its first event and its job. */
export async function storeRun(
  services: CommandServices,
  principal: Principal,
  { id, session, hash, payload }: NewRun,
): Promise<Outcome> {
  const { tenant, user } = principal;
  const ref = { tenant, session, run: deriveRunId({ tenant, user, session, id }) };
  const now = services.wallClock();
  const deadline = now + services.deadlineMs;
  const queued = { ...payload, by: user, deadline };
  // With the session's options a command that fitted into a frame may be an event that does not.
  if (Buffer.byteLength(JSON.stringify(queued)) > MAX_EVENT_BYTES - ENVELOPE_BYTES) {
    return refusal("too_large", "tools, options and attachments are too large for one event");
  }
  const { agent, retry_of } = payload;
  const start = await services.events.start({
    ref,
    agent,
    user,
    commandId: id,
    hash,
    deadline,
    payload: queued,
  });
  if (start.outcome === "conflict") return conflict();
  if (start.outcome === "stored") {
    const entry = { ...ref, agent, status: "queued", by: user, queued_at: now } as const;
    await noteRun(services, retry_of === undefined ? entry : { ...entry, retry_of });
  }
  return started(ref.run, start.epoch, start.outcome === "duplicate");
}

/** The run is stored; `duplicate`: by an earlier sending of the command. */
export function started(run: string, epoch: string, duplicate: boolean): Outcome {
  const cursor = formatCursor({ seq: 0, streamSeq: 0, tag: cursorTag(run, epoch) });
  return { ok: true, kind: "started", run, duplicate, cursor };
}

/** An index that does not answer must not hold up a start that is stored. */
const NOTE_MS = 1_000;

/**
 * For the session's list of runs. It may fail: the run is started, its worker notes it again, and
 * whoever needs to know all runs asks the log.
 */
function noteRun(services: CommandServices, entry: RunEntry): Promise<void> {
  const noted = services.runIndex.put(entry).catch((error: unknown) => {
    services.log.warn({ err: error, run: entry.run }, "a started run is not in its session's list");
  });
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, NOTE_MS);
    void noted.then(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
