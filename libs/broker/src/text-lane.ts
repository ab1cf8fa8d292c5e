import type { NewEvent } from "@throughline/protocol";
import type { NewEphemeral } from "./ephemeral.ts";

/** All in ms, `checkpointBytes` in UTF-16 code units. */
export interface LaneTimes {
  /** Deltas within it are joined to one (default 20). */
  readonly windowMs?: number;
  /** The window while text comes faster than one write per window (default 40). */
  readonly busyWindowMs?: number;
  /** Text is stored at least this often while it flows (default 500). */
  readonly checkpointMs?: number;
  /** … and whenever so much is not yet stored (default 2048). */
  readonly checkpointBytes?: number;
}

/** What the lane needs of its run writer. */
export interface LanePort {
  /** Appends a checkpoint durably; resolves when it is stored. */
  checkpoint(event: NewEvent): Promise<unknown>;
  deltas(events: readonly NewEphemeral[]): void;
  ready(): Promise<void>;
}

export interface TextStream {
  /** UTF-16 code units written so far. */
  readonly length: number;
  /** Shows text now and stores it with the next checkpoint. Resolves at once unless the writer's queue is full. */
  write(text: string): Promise<void>;
  /** Stores what is not stored yet; resolves when it is. Writing after it is an error. After the writer's `closeText` there is nothing to store. */
  end(): Promise<void>;
}

/** UTF-16 code units of one chunk. At six bytes each, the most that JSON makes of one, it still fits an event. */
const MAX_PIECE = 64 * 1024;

/** Not in the middle of a character. */
function firstPiece(text: string): string {
  const last = text.charCodeAt(MAX_PIECE - 1);
  const isHigh = last >= 0xd800 && last <= 0xdbff;
  return text.slice(0, isHigh ? MAX_PIECE - 1 : MAX_PIECE);
}

interface Open {
  readonly messageId: string;
  readonly stepId: string | undefined;
  /** Written and not yet in a checkpoint; starts at `storedLength`. */
  unstored: string;
  storedLength: number;
  /** Part of `unstored` that was sent as deltas, in code units. */
  shown: number;
  /** The last checkpoint's append. */
  storing: Promise<unknown>;
  ended: boolean;
}

/**
 * The two lanes of a run's text (ARCHITECTURE §3). Ephemeral: the first delta goes at once, the
 * next at most one message per window. Durable: `model.chunk` checkpoints, for every open
 * message at the same time, so that storage grows with checkpoints and not with tokens.
 */
export class TextLane {
  readonly #port: LanePort;
  readonly #times: Required<LaneTimes>;
  readonly #open: Set<Open> = new Set();
  #window: NodeJS.Timeout | undefined;
  #checkpointTimer: NodeJS.Timeout | undefined;
  #writesInWindow = 0;
  #stopped = false;

  constructor(port: LanePort, times: LaneTimes = {}) {
    this.#port = port;
    this.#times = {
      windowMs: times.windowMs ?? 20,
      busyWindowMs: times.busyWindowMs ?? 40,
      checkpointMs: times.checkpointMs ?? 500,
      checkpointBytes: times.checkpointBytes ?? 2_048,
    };
  }

  open(messageId: string, stepId?: string): TextStream {
    const open: Open = {
      messageId,
      stepId,
      unstored: "",
      storedLength: 0,
      shown: 0,
      storing: Promise.resolve(),
      ended: false,
    };
    this.#open.add(open);
    const length = (): number => open.storedLength + open.unstored.length;
    return {
      get length(): number {
        return length();
      },
      write: (text) => this.#write(open, text),
      end: () => this.#end(open),
    };
  }

  /** Appends everything not yet stored, one chunk per open message. */
  checkpoint(): void {
    clearTimeout(this.#checkpointTimer);
    this.#checkpointTimer = undefined;
    for (const open of this.#open) {
      if (open.unstored === "") continue;
      const text = open.unstored;
      const offset = open.storedLength;
      open.storedLength += text.length;
      open.unstored = "";
      open.shown = 0;
      open.storing = this.#port.checkpoint({
        type: "model.chunk",
        ...(open.stepId === undefined ? {} : { step_id: open.stepId }),
        payload: { message_id: open.messageId, offset, text },
      });
      // A refused append breaks the writer, which tells its owner by its signal; `end` tells the producer.
      open.storing.catch(() => undefined);
    }
  }

  /** Stores everything and ends every open text; what is still written to those is swallowed. */
  close(): void {
    this.checkpoint();
    this.#open.clear();
  }

  /** Nothing is stored or shown from now on. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#window);
    clearTimeout(this.#checkpointTimer);
    this.#window = undefined;
    this.#checkpointTimer = undefined;
    this.#open.clear();
  }

  #write(open: Open, text: string): Promise<void> {
    if (open.ended) return Promise.reject(new TypeError(`message ${open.messageId} has ended`));
    if (this.#stopped || !this.#open.has(open) || text === "") return this.#port.ready();
    this.#writesInWindow += 1;
    let rest = text;
    while (rest.length > MAX_PIECE) {
      const piece = firstPiece(rest);
      rest = rest.slice(piece.length);
      // What is there goes first, so that a piece is a chunk of its own.
      this.checkpoint();
      open.unstored = piece;
      this.checkpoint();
    }
    open.unstored += rest;
    if (open.unstored.length >= this.#times.checkpointBytes) {
      this.checkpoint();
    } else {
      if (this.#window === undefined) this.#show();
      this.#checkpointTimer ??= setTimeout(() => this.checkpoint(), this.#times.checkpointMs);
    }
    return this.#port.ready();
  }

  async #end(open: Open): Promise<void> {
    open.ended = true;
    if (open.unstored !== "" && !this.#stopped) this.checkpoint();
    this.#open.delete(open);
    await open.storing;
  }

  /** Sends what no delta or chunk has shown yet, and opens the window in which the next is held. */
  #show(): void {
    const deltas: NewEphemeral[] = [];
    for (const open of this.#open) {
      if (open.shown === open.unstored.length) continue;
      deltas.push({
        type: "model.delta",
        ...(open.stepId === undefined ? {} : { step_id: open.stepId }),
        payload: {
          message_id: open.messageId,
          offset: open.storedLength + open.shown,
          text: open.unstored.slice(open.shown),
        },
      });
      open.shown = open.unstored.length;
    }
    const busy = this.#writesInWindow > 1;
    this.#writesInWindow = 0;
    this.#window = undefined;
    if (deltas.length === 0) return;
    this.#port.deltas(deltas);
    const wait = busy ? this.#times.busyWindowMs : this.#times.windowMs;
    this.#window = setTimeout(() => this.#show(), wait);
  }
}
