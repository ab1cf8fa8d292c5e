/** NATS did not answer, or not in time. Nothing is known of the request's effect. Retriable. */
export class BrokerUnavailable extends Error {
  override readonly name = "BrokerUnavailable";
}

/** The installation does not fit what this process was told (NATS too old, another shard count, …). Fatal. */
export class BrokerMisfit extends Error {
  override readonly name = "BrokerMisfit";
}

/** Another attempt owns the run: nothing more may be appended, and the job's delivery is no longer ours. */
export class FencedError extends Error {
  override readonly name = "FencedError";
}

/** The run writer could not learn the outcome of an append within its time, or met a fatal refusal. */
export class WriterFailed extends Error {
  override readonly name = "WriterFailed";
}

/** One event is larger than a message may be. The run goes on; the event was not written. */
export class EventTooLarge extends Error {
  override readonly name = "EventTooLarge";
}

/** More is queued for the log than the writer may hold. Await earlier appends before the next. */
export class QueueFull extends Error {
  override readonly name = "QueueFull";
}

/** Stored messages contradict each other (a hole in seq, another incarnation, a bad header). Never guessed over. */
export class LogCorrupt extends Error {
  override readonly name = "LogCorrupt";
}

/** A value does not fit where it is to be kept. Nothing was changed, and no retry helps. */
export class ValueTooLarge extends Error {
  override readonly name = "ValueTooLarge";
}

/** The object that a reference names is not stored (any more). */
export class ObjectGone extends Error {
  override readonly name = "ObjectGone";
}
