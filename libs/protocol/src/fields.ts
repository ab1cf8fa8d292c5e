/*
 * The fields that several messages share. Text limits exist where a value is kept per run or shown in a
 * list; contents of the application's own are bounded by the frame only.
 */
import { z } from "zod";
import { CURSOR_PATTERN, parseCursor } from "./cursor.ts";
import { EVENT_ID_PATTERN, ID_PATTERN, ID_RULE } from "./ids.ts";

export const id = z.string().regex(ID_PATTERN, ID_RULE);
export const eventIdField = z
  .string()
  .regex(EVENT_ID_PATTERN, "must be an event id: <run_id>.<seq>");

/** A cursor that a client sends back. Whether it still fits the run is for the edge to find out. */
export const cursor = z
  .string()
  .regex(CURSOR_PATTERN, "is no cursor")
  .refine((text) => parseCursor(text) !== undefined, "is no cursor");

/** A user as the token names it: opaque, any characters. */
export const user = z.string().min(1).max(256);

/** Milliseconds since the epoch. */
export const time = z.int().min(0);

export const count = z.int().min(0);
export const label = z.string().min(1).max(256);
export const reason = z.string().max(1_000);

/** Any JSON value, `null` too, but it must be there. */
export const json = z.unknown().refine((value) => value !== undefined, "is required");

/** What stands in place of a large `input`, `result`, `output` or `state`. */
export const artifactRef = z.object({
  $artifact: id,
  bytes: count,
  sha256: z.string().regex(/^[0-9a-f]{64}$/, "must be 64 lower-case hex digits"),
});

export const failure = z.object({
  code: z.string().min(1).max(64),
  message: z.string(),
  retryable: z.boolean(),
});

/** An uploaded file that goes with an input. */
export const attachment = z.object({
  artifact_id: id,
  name: label.optional(),
  media_type: label.optional(),
});

/** A tool that the client executes. The name is the model provider's: wider than an id, since it is no subject token. */
export const toolName = z
  .string()
  .regex(/^[A-Za-z0-9_.:/-]{1,128}$/, "must be 1 to 128 characters of A-Z a-z 0-9 _ . : / -");
export const tool = z.object({
  name: toolName,
  description: z.string().max(16_384).optional(),
  /** JSON Schema of the arguments. */
  input_schema: z.record(z.string(), z.unknown()).optional(),
});

/** Options for the agent. The named ones mean the same to every agent; others are the agent's own. */
export const options = z.looseObject({
  model: label.optional(),
  temperature: z.number().min(0).max(2).optional(),
  max_tokens: z.int().min(1).optional(),
  tool_choice: z.unknown().optional(),
  system: z.string().optional(),
});

/** Tokens spent. */
export const usage = z.object({
  input_tokens: count,
  output_tokens: count,
  /** Part of `input_tokens`. */
  cached_input_tokens: count.optional(),
  /** Part of `output_tokens`. */
  reasoning_tokens: count.optional(),
});

export const role = z.enum(["viewer", "operator", "owner"]);
export const executor = z.enum(["client", "worker"]);
