import type { ErrorCode } from "../error-codes.ts";
import { commandSchema, type Command } from "./catalogue.ts";

export type ParsedCommand =
  | { readonly ok: true; readonly command: Command }
  | {
      readonly ok: false;
      readonly code: ErrorCode;
      readonly message: string;
      readonly path?: string;
      readonly id?: string;
    };

export function parseCommand(value: unknown): ParsedCommand {
  const parsed = commandSchema.safeParse(value);
  if (parsed.success) return { ok: true, command: parsed.data };
  return { ok: false, code: "invalid", message: parsed.error.message };
}
