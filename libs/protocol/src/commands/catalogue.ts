/* All commands of the wire. */
import { z } from "zod";
import { ack, authRefresh, heartbeatCommand, subscribe, unsubscribe } from "./connection.ts";
import { approvalRespond, inputRespond, toolCallClaim, toolResultReport } from "./response.ts";
import {
  runCancel,
  runContinue,
  runInterrupt,
  runResume,
  runRetry,
  runStart,
  stepRetry,
} from "./run.ts";
import { sessionCreate } from "./session.ts";

export const commandSchema = z.discriminatedUnion("type", [
  sessionCreate,
  subscribe,
  unsubscribe,
  ack,
  runStart,
  runCancel,
  runInterrupt,
  runResume,
  runContinue,
  runRetry,
  stepRetry,
  approvalRespond,
  toolCallClaim,
  toolResultReport,
  inputRespond,
  authRefresh,
  heartbeatCommand,
]);

export type Command = z.infer<typeof commandSchema>;
export type CommandType = Command["type"];
export type CommandOf<T extends CommandType> = Extract<Command, { type: T }>;
export type CommandPayload<T extends CommandType> = CommandOf<T>["payload"];
