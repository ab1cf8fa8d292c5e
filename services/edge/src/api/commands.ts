import { type CommandType, isRunCommandType } from "@throughline/protocol";
import { parseCommand } from "@throughline/protocol/schemas";
import { randomUUID } from "node:crypto";
import type { Principal } from "../auth/principal.ts";
import { execute, isEffective } from "../commands/execute.ts";
import type { Outcome } from "../commands/outcome.ts";
import type { HttpRequest } from "../transport/http.ts";
import { json, problem, type Reply } from "../transport/problem.ts";
import { bodyOf, type JsonObject } from "./body.ts";
import type { ApiServices } from "./services.ts";

/** POST /v1/sessions: the body is the payload of `session.create`, the command id a header. */
export async function createSession(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const body = bodyOf(request);
  if (!body.ok) return body.reply;
  const command = { type: "session.create", id: commandId(request), payload: body.value };
  return run(services, principal, command);
}

/** POST /v1/sessions/{s}/runs: the body is the payload of `run.start`. */
export async function startRun(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const body = bodyOf(request);
  if (!body.ok) return body.reply;
  const [session_id] = request.params;
  const command = { type: "run.start", id: commandId(request), session_id, payload: body.value };
  return run(services, principal, command);
}

/** POST /v1/sessions/{s}/runs/{r}/commands: the body is the command; its session and run are the path's. */
export async function sendCommand(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const body = bodyOf(request);
  if (!body.ok) return body.reply;
  const [session_id, run_id] = request.params;
  const path = { session_id, run_id };
  for (const [name, value] of Object.entries(path)) {
    const given = body.value[name];
    if (given === undefined || given === value) continue;
    return problem("invalid", `${name}: is not the one in the path`);
  }
  // An id that is there and is none, `null` too, is refused: a client would take its retries for the same command.
  const own = Object.hasOwn(body.value, "id") ? body.value["id"] : randomUUID();
  const id = request.headers.get("idempotency-key") ?? own;
  return run(services, principal, { ...body.value, ...path, id }, isRunCommandType);
}

async function run(
  services: ApiServices,
  principal: Principal,
  value: JsonObject,
  belongsHere: (type: CommandType) => boolean = () => true,
): Promise<Reply> {
  const parsed = parseCommand(value);
  if (!parsed.ok) return problem(parsed.code, parsed.message);
  const { command } = parsed;
  if (!belongsHere(command.type)) {
    return problem("invalid", `type: ${command.type} is not addressed to a run`);
  }
  if (!isEffective(command)) {
    return problem("invalid", `type: ${command.type} concerns a connection, and here is none`);
  }
  return replyOf(command.id, await execute(services.commands, principal, command));
}

function replyOf(id: string, outcome: Outcome): Reply {
  if (!outcome.ok) return problem(outcome.code, outcome.message, outcome);
  const { duplicate } = outcome;
  switch (outcome.kind) {
    case "session":
      return json(duplicate ? 200 : 201, { id, session_id: outcome.session, duplicate });
    case "started":
      return json(202, { id, run_id: outcome.run, cursor: outcome.cursor, duplicate });
    case "stored":
      return json(202, { id, run_id: outcome.run, duplicate });
  }
}

/** Without the header a retry is another command: so every client that retries sends it. */
function commandId(request: HttpRequest): string {
  return request.headers.get("idempotency-key") ?? randomUUID();
}
