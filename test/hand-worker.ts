import { type Broker, openRunWriter, type RunWriter } from "@throughline/broker";
import { readLog, TENANT } from "./world.ts";

/** An agent that no worker offers: its runs are written by the test, event by event. */
export const BY_HAND = "by-hand";

/** Takes up a queued run as its worker. */
export async function writerOf(broker: Broker, session: string, run: string): Promise<RunWriter> {
  const ref = { tenant: TENANT, session, run };
  const [queued] = await readLog(broker, ref);
  if (queued === undefined) throw new Error(`${run} is not queued`);
  return openRunWriter(broker, {
    ref,
    epoch: queued.epoch,
    attempt: 1,
    worker: BY_HAND,
    position: { seq: 1, streamSeq: queued.streamSeq, eSeq: 0, cmd: 0 },
  });
}
