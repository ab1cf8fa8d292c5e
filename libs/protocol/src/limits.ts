/*
 * Limits of the wire, each with its reason. They are part of the protocol: `welcome` tells clients
 * the frame limit, and both sides may rely on the others.
 */

/**
 * Largest frame in bytes, in both directions. Half of NATS's default `max_payload` (1 MiB), so that a
 * frame always fits one stored message with its headers, whatever the headers hold.
 */
export const MAX_FRAME_BYTES: number = 512 * 1024;

/**
 * Largest stored event in bytes. The edge adds `,"cursor":"…"` (at most 61 bytes) to it, and the result
 * must still be a legal frame.
 */
export const MAX_EVENT_BYTES: number = MAX_FRAME_BYTES - 128;

/** Lines of one stored message: 1,000 messages of a page stay within a quarter million events. */
export const MAX_BATCH_EVENTS = 256;

/** Bytes of one stored message's body: as much as one frame, so that a batch of one event is no special case. */
export const MAX_BATCH_BYTES: number = 512 * 1024;

/**
 * `input`, `result`, `output` and `state` above this many bytes of JSON are stored as an artifact and
 * appear as `{"$artifact": …}`. A quarter of the frame limit: an event may hold two such values and
 * its names, and a page of 128 KiB still moves when one is in it.
 */
export const MAX_INLINE_BYTES: number = 128 * 1024;

/**
 * Nesting of a command's JSON, the frame itself being level 1. Real inputs and JSON schemas stay under
 * 20; recursive code (JSON.stringify, merge patch) overflows at some thousands.
 */
export const MAX_DEPTH = 64;

/** Subscriptions of one connection. */
export const MAX_SUBSCRIPTIONS = 256;

/**
 * Events that the windows of a connection's subscriptions may come to together. Each event that is not
 * acknowledged may cost the edge some 60 bytes, whoever has sent it.
 */
export const MAX_WINDOW = 10_000;

/**
 * Frames that a client may send: so many a second, a burst of them after a pause (a reconnect subscribes to
 * all it follows, and repeats what had no answer), and so many in excess, which are refused, before the
 * connection is closed. People and agents send a few a second.
 */
export const FRAME_RATE = { perSecond: 100, burst: 1_000, excess: 200 } as const;

/** Seconds of silence after which a side sends a heartbeat; well under the 60 s of common middleboxes. */
export const HEARTBEAT_INTERVAL_MS = 20_000;

/** How long a claim on a client-side tool call may be asked for: long enough for a human at a prompt. */
export const MAX_LEASE_MS: number = 60 * 60 * 1000;

/** A claim shorter than a reconnect with back-off would lapse under a client that is doing fine. */
export const MIN_LEASE_MS = 1_000;

/** Members, tools, results or attachments in one command: people and programs, not bulk data. */
export const MAX_LISTED = 256;
