import type { EphemeralEvent, EphemeralType } from "@throughline/protocol";
import type { HeaderFields } from "./header-text.ts";
import { H } from "./headers.ts";
import { runOfSubject } from "./subjects.ts";

/** What a writer is given for the ephemeral lane; it adds the run's ids, `ts` and `attempt`. */
export type NewEphemeral<T extends EphemeralType = EphemeralType> = {
  [K in T]: Pick<EphemeralEvent<K>, "type" | "payload"> & { readonly step_id?: string };
}[T];

/** One message of the ephemeral lane: NDJSON of envelopes without seq. */
export interface EphemeralMessage {
  readonly run: string;
  readonly attempt: number;
  readonly writer: string;
  readonly epoch: string;
  /** The last durable seq that the writer had assigned before it sent this. */
  readonly after: number;
  readonly body: Uint8Array;
}

/** Headers that are no numbers give NaN, which compares false: such a message is never shown. */
export function ephemeralMessage(
  subject: string,
  headers: HeaderFields,
  body: Uint8Array,
): EphemeralMessage {
  return {
    run: runOfSubject(subject),
    attempt: Number.parseInt(headers.get(H.attempt), 10),
    writer: headers.get(H.writer),
    epoch: headers.get(H.epoch),
    after: Number.parseInt(headers.get(H.after), 10),
    body,
  };
}
