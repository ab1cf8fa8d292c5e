import type { RunEvent, UnknownEvent } from "./events/catalogue.ts";
import type { RunState } from "./state/run-state.ts";

/** A durable event came whose predecessor did not. */
export class HoleError extends Error {
  readonly expected: number;
  readonly got: number;
  constructor(expected: number, got: number) {
    super(`expected event ${expected}, got ${got}`);
    this.name = "HoleError";
    this.expected = expected;
    this.got = got;
  }
}

export function reduce(state: RunState, _event: RunEvent | UnknownEvent): RunState {
  return state;
}
