import {
  bodyHash,
  type CommandLog,
  deriveRunId,
  deriveSessionId,
  type EventLog,
  type RunRef,
  type StoredCommand,
} from "@throughline/broker";
import {
  COMMAND_KINDS,
  type Command,
  type CommandOf,
  commandVerdict,
  cursorTag,
  formatCursor,
  type RunCommandType,
} from "@throughline/protocol";
import { authorise, type Operation } from "../auth/grants.ts";
import type { Principal } from "../auth/principal.ts";
import type { Log } from "../log.ts";
import { type Outcome, refusal, type Refusal, refusalOf } from "./outcome.ts";
import type { SessionRecords } from "./sessions.ts";

/** What `session.create` stores. */
export interface NewSession {
  readonly tenant: string;
  readonly session: string;
  readonly owner: string;
  readonly title?: string;
  readonly members: Readonly<Record<string, string>>;
  readonly created_at: number;
  readonly command_hash: string;
}

export interface SessionCreator {
  create(record: NewSession): Promise<{
    readonly outcome: "created" | "exists";
    readonly record: { readonly command_hash: string };
  }>;
}

export interface CommandServices {
  readonly events: Pick<EventLog, "start" | "last">;
  readonly commands: Pick<CommandLog, "publish" | "tail">;
  readonly sessions: SessionRecords;
  readonly creator: SessionCreator;
  readonly log: Log;
  /** ms since the epoch. */
  readonly wallClock: () => number;
  /** From a run's start to its deadline. */
  readonly deadlineMs: number;
}

/** Commands that change a session or a run; the others concern the connection only. */
export type EffectiveCommand =
  | CommandOf<"session.create">
  | CommandOf<"run.start">
  | CommandOf<RunCommandType>;

export function isEffective(command: Command): command is EffectiveCommand {
  return COMMAND_KINDS[command.type].to !== "edge";
}

/**
 * Takes a decoded command of a user to the log: authorise → publish → outcome. Every door leads
 * here. Never throws; a retry with the same id, through whatever node, has the same effect.
 */
export async function execute(
  services: CommandServices,
  principal: Principal,
  command: EffectiveCommand,
): Promise<Outcome> {
  try {
    switch (command.type) {
      case "session.create":
        return await createSession(services, principal, command);
      case "run.start":
        return await startRun(services, principal, command);
      case "run.retry":
        return refusal("not_allowed", "this node does not repeat runs");
      default:
        return await steerRun(services, principal, command);
    }
  } catch (error) {
    const refused = refusalOf(error);
    if (refused.code === "internal") {
      services.log.error({ err: error, command: command.type }, "a command failed");
    }
    return refused;
  }
}

async function createSession(
  services: CommandServices,
  principal: Principal,
  command: CommandOf<"session.create">,
): Promise<Outcome> {
  const verdict = authorise(principal, "session.create", undefined);
  if (!verdict.ok) return refusal(verdict.code, verdict.message);
  const { tenant, user } = principal;
  const session = deriveSessionId({ tenant, user, id: command.id });
  const hash = bodyHash({ type: command.type, payload: command.payload });
  const { title, members } = command.payload;
  const { outcome, record } = await services.creator.create({
    tenant,
    session,
    owner: user,
    ...(title === undefined ? {} : { title }),
    members: members ?? {},
    created_at: services.wallClock(),
    command_hash: hash,
  });
  if (record.command_hash !== hash) return conflict();
  return { ok: true, kind: "session", session, duplicate: outcome === "exists" };
}

async function startRun(
  services: CommandServices,
  principal: Principal,
  command: CommandOf<"run.start">,
): Promise<Outcome> {
  const refused = await authorised(services, principal, "run.start", command.session_id);
  if (refused) return refused;
  const { tenant, user } = principal;
  const { id, session_id: session, payload } = command;
  const run = deriveRunId({ tenant, user, session, id });
  const deadline = services.wallClock() + services.deadlineMs;
  const started = await services.events.start({
    ref: { tenant, session, run },
    agent: payload.agent,
    user,
    commandId: id,
    hash: bodyHash({ type: command.type, session_id: session, payload }),
    deadline,
    payload: { ...payload, by: user, deadline },
  });
  if (started.outcome === "conflict") return conflict();
  const cursor = formatCursor({ seq: 0, streamSeq: 0, tag: cursorTag(run, started.epoch) });
  return { ok: true, kind: "started", run, duplicate: started.outcome === "duplicate", cursor };
}

/** Any command to a run: stored in its command log, and judged by its worker. */
async function steerRun(
  services: CommandServices,
  principal: Principal,
  command: Exclude<CommandOf<RunCommandType>, { type: "run.retry" }>,
): Promise<Outcome> {
  const refused = await authorised(services, principal, "run.steer", command.session_id);
  if (refused) return refused;
  const ref = refOf(principal, command);
  const { user } = principal;
  const { id, ...body } = command;
  // The id is used: it started this very run.
  if (ref.run === deriveRunId({ ...ref, user, id })) return conflict();
  const hash = bodyHash(body);
  const over = await endedOrAbsent(services, ref, command.type);
  if (over?.code === "run_ended") {
    return (await storedBefore(services, ref, { id, user, hash })) ?? over;
  }
  if (over) return over;
  const stored = await services.commands.publish({ ref, command, user, hash });
  if (stored.outcome === "conflict") return conflict();
  return { ok: true, kind: "stored", run: ref.run, duplicate: stored.outcome === "duplicate" };
}

/**
 * What a retry of a command to a finished run is told: it may be the very command that ended it,
 * its answer lost with the link. So the run's own commands are looked through for it.
 */
async function storedBefore(
  services: CommandServices,
  ref: RunRef,
  wanted: { id: string; user: string; hash: string },
): Promise<Outcome | undefined> {
  let found: StoredCommand | undefined;
  let fault: Error | undefined;
  const tail = services.commands.tail(ref, 0, {
    command: (stored) => {
      if (stored.user === wanted.user && idOf(stored.command) === wanted.id) found ??= stored;
    },
    fault: (error) => {
      fault = error;
    },
  });
  try {
    await tail.drainToLeader();
  } finally {
    tail.close();
  }
  if (fault) throw fault;
  if (found === undefined) return undefined;
  if (found.hash !== wanted.hash) return conflict();
  return { ok: true, kind: "stored", run: ref.run, duplicate: true };
}

function idOf(command: unknown): unknown {
  return typeof command === "object" && command !== null && "id" in command
    ? command.id
    : undefined;
}

function refOf(principal: Principal, command: CommandOf<RunCommandType>): RunRef {
  const { tenant, user } = principal;
  const session = command.session_id;
  if (command.run_id !== undefined) return { tenant, session, run: command.run_id };
  // Only run.cancel may go without: it names the start, and so the run that the start makes.
  const id = "start_id" in command.payload ? (command.payload.start_id ?? "") : "";
  return { tenant, session, run: deriveRunId({ tenant, user, session, id }) };
}

/** A replica's "not there" is asked of the leader; its "not over" may be old, and then the worker says so. */
async function endedOrAbsent(
  services: CommandServices,
  ref: RunRef,
  type: RunCommandType,
): Promise<Refusal | undefined> {
  const filter = { kind: "run", ...ref } as const;
  const last =
    (await services.events.last(filter, "replica")) ??
    (await services.events.last(filter, "leader"));
  if (last === undefined) return refusal("not_found", "the session has no such run");
  if (!last.end) return undefined;
  // How it ended makes no difference to what may be done with it.
  const verdict = commandVerdict("completed", type);
  return verdict.ok ? undefined : refusal(verdict.code, "the run has ended");
}

async function authorised(
  services: CommandServices,
  principal: Principal,
  operation: Operation,
  session: string,
): Promise<Refusal | undefined> {
  const record = await services.sessions.get({ tenant: principal.tenant, session });
  const verdict = authorise(principal, operation, record);
  return verdict.ok ? undefined : refusal(verdict.code, verdict.message);
}

function conflict(): Refusal {
  return refusal("idempotency_conflict", "this command id was used before with another content");
}
