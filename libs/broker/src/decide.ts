import type { Broker } from "./broker.ts";
import type { Hand } from "./claim.ts";
import type { OwnerCheck } from "./owner-check.ts";
import { type QueuedRun, recover, type RecoveredRun } from "./recover.ts";
import type { SnapshotStore } from "./snapshot-store.ts";
import { readStanding, standingVerdict } from "./standing.ts";

/** What a delivered job turns out to be. */
export type Found =
  | { readonly kind: "fresh" }
  | { readonly kind: "takeover"; readonly log: RecoveredRun }
  /** Nothing to do any more: to be acked. */
  | { readonly kind: "over"; readonly warning?: string }
  /** Its owner lives: neither ack nor nak, so that the owner's token goes on extending it. */
  | { readonly kind: "owned" };

export interface Deciding {
  readonly broker: Pick<Broker, "nc" | "shardOf" | "events">;
  readonly snapshots: Pick<SnapshotStore, "read">;
  readonly ownerCheck: Pick<OwnerCheck, "ask">;
  /** Our own id. */
  readonly worker: string;
}

/**
 * The log decides, not the delivery count: an ack of the last moments can be lost with a
 * server, so a finished run may come again, and a first delivery may be of a run that was begun.
 * Rejects with BrokerUnavailable (try again) or LogCorrupt.
 */
export async function decide(by: Deciding, hand: Hand, queued: QueuedRun): Promise<Found> {
  for (;;) {
    const standing = await readStanding(by.broker, hand.ref, hand.agent);
    const verdict = standingVerdict(queued, standing);
    switch (verdict.kind) {
      case "fresh":
        return { kind: "fresh" };
      case "ended":
        return { kind: "over" };
      case "stale":
        return { kind: "over", warning: "the delivered job is not the stored one" };
      case "foreign": {
        const { epoch } = verdict.last;
        return { kind: "over", warning: `the log is of epoch ${epoch}, the job of ${hand.epoch}` };
      }
      case "begun":
    }
    if (await isHeld(by, hand, verdict.last.worker)) return { kind: "owned" };
    const log = await recover(by.broker, by.snapshots, hand.ref, queued);
    // The owner finished while it was asked: its terminal decides.
    if (log !== "ended") return { kind: "takeover", log };
  }
}

async function isHeld(by: Deciding, hand: Hand, worker: string): Promise<boolean> {
  // Our own name and not in our hands: we let it go, and go on from the log like anybody else.
  if (worker === "" || worker === by.worker) return false;
  const question = { ...hand.ref, epoch: hand.epoch, agent: hand.agent };
  return (await by.ownerCheck.ask(worker, question)) === "holds";
}
