/* What a run brings forth besides text, and the record of what it has done already. */
import type { DurableEvent, EventPayload } from "../events/catalogue.ts";
import { mergePatch } from "../merge-patch.ts";
import { compact, memberOf, placed, withMember } from "./list.ts";
import { appliedKey, type RunState } from "./run-state.ts";

export function onArtifact(state: RunState, event: DurableEvent<"artifact.ready">): RunState {
  const { artifact_id, name, media_type, bytes, sha256 } = event.payload;
  const artifact = compact({
    artifact_id,
    name,
    media_type,
    bytes,
    sha256,
    step_id: event.step_id,
  });
  return { ...state, artifacts: placed(state.artifacts, "artifact_id", artifact) };
}

export function onUsage(state: RunState, event: DurableEvent<"usage.updated">): RunState {
  const { model, ...spent } = event.payload;
  const { total, models } = state.usage;
  return {
    ...state,
    usage: {
      total: sum(total, spent),
      models: withMember(models, model, sum(memberOf(models, model), spent)),
    },
  };
}

export function onStateUpdated(state: RunState, event: DurableEvent<"state.updated">): RunState {
  const { payload } = event;
  return {
    ...state,
    app: "patch" in payload ? mergePatch(state.app, payload.patch) : payload.state,
  };
}

export function onMemory(state: RunState, event: DurableEvent<"memory.updated">): RunState {
  const { key, value } = event.payload;
  if (value !== null) return { ...state, memory: withMember<unknown>(state.memory, key, value) };
  if (!Object.hasOwn(state.memory, key)) return state;
  const { [key]: _, ...memory } = state.memory;
  return { ...state, memory };
}

/** Remembers the command that an event answers, so that a late duplicate of it is recognised. */
export function recordAnswer(
  state: RunState,
  event: {
    readonly seq: number;
    readonly reply_to?: string | undefined;
    readonly reply_by?: string | undefined;
  },
): RunState {
  if (event.reply_to === undefined) return state;
  const key = appliedKey(event.reply_to, event.reply_by);
  if (Object.hasOwn(state.applied, key)) return state;
  return { ...state, applied: withMember(state.applied, key, event.seq) };
}

/** Counts what opens nothing and so leaves no other trace of its key; a takeover skips that many. */
export function recordEmit(state: RunState, event: DurableEvent): RunState {
  switch (event.type) {
    case "artifact.ready":
    case "usage.updated":
    case "state.updated":
    case "memory.updated":
    case "custom": {
      if (event.key === undefined) return state;
      const scope = scopeOf(event.key);
      const count = (memberOf(state.emits, scope) ?? 0) + 1;
      return { ...state, emits: withMember(state.emits, scope, count) };
    }
    default:
      return state;
  }
}

/** A key without its number: `parent/name#3` → `parent/name`. */
function scopeOf(key: string): string {
  const hash = key.lastIndexOf("#");
  return hash === -1 ? key : key.slice(0, hash);
}

type Usage = RunState["usage"]["total"];
type Spent = Omit<EventPayload<"usage.updated">, "model">;

function sum(before: Usage | undefined, spent: Spent): Usage {
  return compact({
    input_tokens: (before?.input_tokens ?? 0) + spent.input_tokens,
    output_tokens: (before?.output_tokens ?? 0) + spent.output_tokens,
    cached_input_tokens: plus(before?.cached_input_tokens, spent.cached_input_tokens),
    reasoning_tokens: plus(before?.reasoning_tokens, spent.reasoning_tokens),
  });
}

function plus(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : a + (b ?? 0);
}
