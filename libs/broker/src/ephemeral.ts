import type { EphemeralEvent, EphemeralType } from "@throughline/protocol";

/** What a writer is given for the ephemeral lane; it adds the run's ids, `ts` and `attempt`. */
export type NewEphemeral<T extends EphemeralType = EphemeralType> = {
  [K in T]: Pick<EphemeralEvent<K>, "type" | "payload"> & { readonly step_id?: string };
}[T];

/** One message of the ephemeral lane: NDJSON of envelopes without seq. */
export interface EphemeralMessage {
  readonly run: string;
  readonly attempt: number;
  readonly epoch: string;
  /** The last durable seq that the writer had assigned before it sent this. */
  readonly after: number;
  readonly body: Uint8Array;
}
