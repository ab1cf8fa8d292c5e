/** The form of a verdict on a command. Pure. */
import type { ErrorCode, NewEvent } from "@throughline/protocol";

/** A command as a verdict needs it: whom the answer goes to, and when it was given. */
export interface Asked {
  readonly id: string;
  readonly by: string;
  /**
   * When it was made. Nobody may have had the run since then, so it is not judged by the time at which
   * its turn comes. No later than now: an edge whose clock is ahead must not let things expire.
   */
  readonly made: number;
}

/** Which command an event answers, and whose that was. */
export function answers(asked: Asked): { readonly reply_to: string; readonly reply_by: string } {
  return { reply_to: asked.id, reply_by: asked.by };
}

/** The step that a request belongs to. */
export function within(thing: { readonly step_id?: string | undefined }): {
  readonly step_id?: string;
} {
  return thing.step_id === undefined ? {} : { step_id: thing.step_id };
}

export function rejected(
  asked: Asked,
  code: ErrorCode,
  message: string,
  current?: unknown,
): NewEvent {
  return {
    type: "command.rejected",
    ...answers(asked),
    payload: { id: asked.id, code, message, ...(current === undefined ? {} : { current }) },
  };
}
