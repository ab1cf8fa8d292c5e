/* What a run brings forth besides text: artifacts, usage, application state, memory, events of its own. */
import { z } from "zod";
import { artifactRef, count, id, json, label, usage } from "../fields.ts";
import { durable } from "./envelope.ts";

export const artifactReady = durable(
  "artifact.ready",
  "A file can be fetched.",
  z.object({
    artifact_id: id,
    name: label,
    media_type: label,
    bytes: count,
    sha256: artifactRef.shape.sha256,
  }),
);

export const usageUpdated = durable(
  "usage.updated",
  "Tokens of one model call (not a running total).",
  z.object({ model: label, ...usage.shape }),
);

export const stateUpdated = durable(
  "state.updated",
  "The application's own state: either `patch`, a JSON Merge Patch (RFC 7396), or `state`, all of it anew.",
  z
    .object({ patch: z.unknown().optional(), state: z.unknown().optional() })
    .refine((payload) => "patch" in payload !== "state" in payload, "needs either patch or state"),
);

export const memoryUpdated = durable(
  "memory.updated",
  "The run remembers something; `value` null forgets it.",
  // Longer than a label: a worker's own notes are kept under an operation's place (512 characters).
  z.object({ key: z.string().min(1).max(1_024), value: json }),
);

export const custom = durable(
  "custom",
  "An event of the agent's own.",
  z.object({ name: label, value: json }),
);
