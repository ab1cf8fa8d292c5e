/** What one viewer of a run was sent, as the wire has it, whatever its library makes of that. */

/** How a viewer came back after a loss. Times in ms on a clock that all processes of the machine share. */
export interface Return {
  readonly lostAt: number;
  /** The WebSocket's close code, the HTTP status of a refusal, 0 for a stream's end, -1 for a broken one. */
  readonly code: number;
  /** When it was told to go, and in what time; undefined where nobody told it. */
  readonly told: { readonly at: number; readonly afterMs: number } | undefined;
  /** When a server answered it again. */
  readonly openAt: number;
  /** When it was level with the log again. */
  readonly levelAt: number;
  /** Attempts that came to nothing in between. */
  readonly failed: number;
}

export interface ViewerReport {
  readonly last: number;
  /** Events left out, and events sent again. */
  readonly holes: number;
  readonly repeats: number;
  readonly isLevel: boolean;
  readonly returns: readonly Return[];
  /** The ms at which the longest time without any byte from the server ended, and how long it was. */
  readonly quietestMs: number;
}

/** `away`: a loss that has not been made up for yet. */
type Phase =
  | { readonly name: "opening" | "level" }
  | { readonly name: "away"; readonly loss: Omit<Return, "openAt" | "levelAt" | "failed"> };

export class ViewerRecord {
  readonly #returns: Return[] = [];
  #phase: Phase = { name: "opening" };
  #told: Return["told"];
  #last = 0;
  #holes = 0;
  #repeats = 0;
  #openAt = 0;
  #failed = 0;
  #heardAt: number | undefined;
  #quietestMs = 0;

  get last(): number {
    return this.#last;
  }

  get isLevel(): boolean {
    return this.#phase.name === "level";
  }

  /** A server has answered. */
  opened(): void {
    this.#openAt = sharedMs();
    this.#heardAt = this.#openAt;
  }

  /** A frame of the protocol, as text. */
  frame(text: string): void {
    this.heard();
    const frame: unknown = JSON.parse(text);
    if (typeof frame !== "object" || frame === null) return;
    if ("seq" in frame && typeof frame.seq === "number") this.#event(frame.seq);
    const type = "type" in frame ? frame.type : undefined;
    if (type === "caught_up") this.#level();
    if (type === "goaway" && "reconnect_after_ms" in frame)
      this.#told = { at: sharedMs(), afterMs: Number(frame.reconnect_after_ms) };
  }

  heard(): void {
    const now = sharedMs();
    if (this.#heardAt !== undefined)
      this.#quietestMs = Math.max(this.#quietestMs, now - this.#heardAt);
    this.#heardAt = now;
  }

  lost(code: number): void {
    if (this.#phase.name === "away") {
      this.#failed += 1;
      return;
    }
    if (this.#phase.name === "level") {
      this.#phase = { name: "away", loss: { lostAt: sharedMs(), code, told: this.#told } };
    }
    this.#told = undefined;
    this.#failed = 0;
  }

  report(): ViewerReport {
    return {
      last: this.#last,
      holes: this.#holes,
      repeats: this.#repeats,
      isLevel: this.isLevel,
      returns: this.#returns,
      quietestMs: this.#quietestMs,
    };
  }

  #event(seq: number): void {
    if (seq <= this.#last) this.#repeats += 1;
    else this.#holes += seq - this.#last - 1;
    this.#last = Math.max(this.#last, seq);
  }

  #level(): void {
    if (this.#phase.name === "away") {
      const { loss } = this.#phase;
      const times = { openAt: this.#openAt, levelAt: sharedMs() };
      this.#returns.push({ ...loss, ...times, failed: this.#failed });
    }
    this.#phase = { name: "level" };
  }
}

/** Milliseconds on the machine's monotonic clock. */
function sharedMs(): number {
  const [seconds, nanos] = process.hrtime();
  return seconds * 1e3 + nanos / 1e6;
}
