/** An interrupt, in events: what the stopped agent had open is closed, and the run is paused. Pure. */
import { closingEvents, type NewEvent, type RunState } from "@throughline/protocol";

/** The interrupt command that was applied. */
export interface InterruptRequest {
  readonly id: string;
  readonly user: string;
  /** Of the command in its stream: the watermark. */
  readonly streamSeq: number;
  readonly reason: string | undefined;
  readonly preserveContext: boolean;
}

export function interruptEvents(state: RunState, request: InterruptRequest): NewEvent[] {
  const { id, user, reason, preserveContext: preserve_context } = request;
  return [
    ...closingEvents(state, { kind: "interrupted", by: user, preserve_context }),
    {
      type: "run.interrupted",
      reply_to: id,
      reply_by: user,
      payload: { ...(reason === undefined ? {} : { reason }), preserve_context, by: user },
    },
  ];
}
