import { bodyHash, deriveRunId, type RunRef } from "@throughline/broker";
import { type CommandOf, commandVerdict, type RunCommandType } from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import { authorised } from "./authorised.ts";
import { conflict, type Outcome, type Refusal, refusal } from "./outcome.ts";
import type { CommandServices } from "./services.ts";

type Steering = Exclude<CommandOf<RunCommandType>, { type: "run.retry" }>;

/** Any command to a run: stored in its command log, and judged by its worker. */
export async function steerRun(
  services: CommandServices,
  principal: Principal,
  command: Steering,
): Promise<Outcome> {
  // When it was made: what expires is judged by this, however late the worker gets to it.
  const at = services.wallClock();
  const allowed = await authorised(services, principal, "run.steer", command.session_id);
  if (!allowed.ok) return allowed;
  const ref = refOf(principal, command);
  const { user } = principal;
  const { id, ...body } = command;
  // The id is used: it started this very run.
  if (ref.run === deriveRunId({ ...ref, user, id })) return conflict();
  const hash = bodyHash(body);
  const over = await standing(services, ref, command);
  if (over?.code === "run_ended") {
    return (await storedBefore(services, ref, { id, user, hash })) ?? over;
  }
  if (over) return over;
  const stored = await services.commands.publish({ ref, command, user, hash, at });
  if (stored.outcome === "conflict") return conflict();
  return { ok: true, kind: "stored", run: ref.run, duplicate: stored.outcome === "duplicate" };
}

/**
 * What a retry of a command to a finished run is told: it may be the very command that ended it,
 * its answer lost with the link.
 */
async function storedBefore(
  services: CommandServices,
  ref: RunRef,
  wanted: { id: string; user: string; hash: string },
): Promise<Outcome | undefined> {
  const found = await services.commands.find({ ref, user: wanted.user, id: wanted.id });
  if (found === undefined) return undefined;
  if (found.hash !== wanted.hash) return conflict();
  return { ok: true, kind: "stored", run: ref.run, duplicate: true };
}

function refOf(principal: Principal, command: Steering): RunRef {
  const { tenant, user } = principal;
  const session = command.session_id;
  if (command.run_id !== undefined) return { tenant, session, run: command.run_id };
  // Only run.cancel may go without: it names the start, and so the run that the start makes.
  const id = "start_id" in command.payload ? (command.payload.start_id ?? "") : "";
  return { tenant, session, run: deriveRunId({ tenant, user, session, id }) };
}

/** How long a start may be behind the cancellation that names it: they may come through different nodes. */
const START_PATIENCE_MS = 1_000;
const START_LOOK_MS = 50;

async function standing(
  services: CommandServices,
  ref: RunRef,
  command: Steering,
): Promise<Refusal | undefined> {
  const giveUpAt = services.wallClock() + START_PATIENCE_MS;
  for (;;) {
    const over = await endedOrAbsent(services, ref, command.type);
    const mayCome = command.run_id === undefined && over?.code === "not_found";
    if (!mayCome || services.wallClock() >= giveUpAt) return over;
    await services.wait(START_LOOK_MS);
  }
}

/** A replica's "not there" is asked of the leader; its "not over" may be old, and then the worker says so. */
async function endedOrAbsent(
  services: CommandServices,
  ref: RunRef,
  type: RunCommandType,
): Promise<Refusal | undefined> {
  const filter = { kind: "run", ...ref } as const;
  const { events, states } = services;
  let last = (await events.last(filter, "replica")) ?? (await events.last(filter, "leader"));
  if (last === undefined) {
    const old = await states.current(ref);
    if (old === undefined) return refusal("not_found", "the session has no such run");
    // Its events have expired, and nobody has it any more; or it has begun since it was looked for.
    last = await events.last(filter, "leader");
  }
  if (last !== undefined && !last.end) return undefined;
  // How it ended makes no difference to what may be done with it.
  const verdict = commandVerdict("completed", type);
  return verdict.ok ? undefined : refusal(verdict.code, "the run has ended");
}
