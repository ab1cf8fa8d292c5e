import type { Msg } from "@nats-io/nats-core";
import type { EphemeralMessage } from "./ephemeral.ts";
import { LogCorrupt } from "./errors.ts";
import { type ScannedHeaders, scanHeaders } from "./header-scan.ts";
import { HeaderText } from "./header-text.ts";
import { H, type LogMessage } from "./headers.ts";
import { runOfSubject } from "./subjects.ts";

/** A live copy: what an edge acts on is read at once, the rest of its headers when it is asked for. */
class LiveMessage implements LogMessage {
  readonly run: string;
  readonly streamSeq: number;
  readonly prev: number;
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly attempt: number;
  readonly epoch: string;
  readonly cmd: number;
  readonly barrier: number;
  readonly settled: number;
  readonly end: boolean;
  readonly lane: "q" | "e";
  readonly body: Uint8Array;
  readonly #message: Msg;

  constructor(message: Msg, run: string, h: Readonly<ScannedHeaders>) {
    this.run = run;
    this.streamSeq = h.sequence;
    this.prev = h.prev;
    this.firstSeq = h.seq;
    this.lastSeq = h.last;
    this.attempt = h.attempt < 0 ? 0 : h.attempt;
    this.epoch = h.epoch;
    this.cmd = h.cmd < 0 ? 0 : h.cmd;
    this.barrier = h.barrier < 0 ? 0 : h.barrier;
    this.settled = h.settled < 0 ? 0 : h.settled;
    this.end = h.end;
    this.lane = h.prev === 0 ? "q" : "e";
    this.body = message.data;
    this.#message = message;
  }

  get writer(): string {
    return HeaderText.of(this.#message).get(H.writer);
  }

  get worker(): string {
    return HeaderText.of(this.#message).get(H.worker);
  }
}

/**
 * Reads a live copy of EVENTS. `run`: where the filter is one run, so that the subject need not be
 * decoded. Throws LogCorrupt on headers that no run writer makes.
 */
export function liveMessage(message: Msg, run: string | undefined): LogMessage {
  const h = scanHeaders(message);
  if (h.sequence < 0 || h.seq < 0 || h.last < 0 || h.prev < 0) {
    throw new LogCorrupt(
      `a live copy on ${message.subject} lacks a header of its place in the log`,
    );
  }
  return new LiveMessage(message, run ?? runOfSubject(message.subject), h);
}

/** Reads an ephemeral message; undefined for one that no run writer made: it is not stored, so it is not missed. */
export function ephemeralMessage(
  message: Msg,
  run: string | undefined,
): EphemeralMessage | undefined {
  let h: Readonly<ScannedHeaders>;
  try {
    h = scanHeaders(message);
  } catch (error) {
    if (error instanceof LogCorrupt) return undefined;
    throw error;
  }
  if (h.attempt < 0 || h.after < 0) return undefined;
  return {
    run: run ?? runOfSubject(message.subject),
    attempt: h.attempt,
    epoch: h.epoch,
    after: h.after,
    body: message.data,
  };
}
