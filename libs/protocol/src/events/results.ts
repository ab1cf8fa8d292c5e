/* What a run brings forth besides text: artifacts, usage, application state, memory, events of its own. */
import { z } from "zod";
import { artifactRef, count, id, json, label, usage } from "../fields.ts";
import { durable } from "./envelope.ts";

export const artifactReady = durable(
  "artifact.ready",
  z.object({
    artifact_id: id,
    name: label,
    media_type: label,
    bytes: count,
    sha256: artifactRef.shape.sha256,
  }),
);

/** Tokens of one model call, not a running total: the reducer adds them up. */
export const usageUpdated = durable("usage.updated", z.object({ model: label, ...usage.shape }));

/**
 * The application's own state: either a JSON Merge Patch (RFC 7396) onto it, or all of it anew, which
 * is how a state too large for an event is given (`{"$artifact": …}`).
 */
export const stateUpdated = durable(
  "state.updated",
  z
    .object({ patch: z.unknown().optional(), state: z.unknown().optional() })
    .refine((payload) => "patch" in payload !== "state" in payload, "needs either patch or state"),
);

/** `value` null forgets the key. */
export const memoryUpdated = durable("memory.updated", z.object({ key: label, value: json }));

export const custom = durable("custom", z.object({ name: label, value: json }));
