import {
  COMMAND_KINDS,
  type Command,
  type CommandOf,
  type RunCommandType,
} from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import { createSession } from "./create-session.ts";
import { type Outcome, refusalOf } from "./outcome.ts";
import { retryRun } from "./retry.ts";
import type { CommandServices } from "./services.ts";
import { startRun } from "./start-run.ts";
import { steerRun } from "./steer.ts";

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
        return await retryRun(services, principal, command);
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
