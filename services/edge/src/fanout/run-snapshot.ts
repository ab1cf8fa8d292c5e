import { MAX_FRAME_BYTES } from "@throughline/protocol";

/** A run's state as of a cursor of its own, ready to be sent. */
export interface RunSnapshot {
  readonly run: string;
  readonly cursor: string;
  /** Undefined: too large to be sent along; it is fetched. */
  readonly json: string | undefined;
}

/** What a snapshot's frame holds besides the state. */
const FRAME_ROOM = 1_024;

/** Where a state that does not fit into a frame is fetched: it answers with the state of that moment. */
function stateUrl(session: string, run: string): string {
  return `/v1/sessions/${session}/runs/${run}`;
}

/** The state of a snapshot as JSON text: `state` if it fits into a frame, else `state_url`. */
export function stateMember(session: string, { run, json }: Omit<RunSnapshot, "cursor">): string {
  const fits = json !== undefined && Buffer.byteLength(json) <= MAX_FRAME_BYTES - FRAME_ROOM;
  return fits ? `"state":${json}` : `"state_url":${JSON.stringify(stateUrl(session, run))}`;
}

/** The frame of a subscription. Ids and cursors need no escapes. */
export function snapshotFrame(
  session: string,
  subscriptionId: string,
  snapshot: RunSnapshot,
): string {
  const { run, cursor } = snapshot;
  const head = `"type":"snapshot","subscription_id":"${subscriptionId}","run_id":"${run}"`;
  return `{${head},"cursor":"${cursor}",${stateMember(session, snapshot)}}`;
}
