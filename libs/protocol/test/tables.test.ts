import { describe, expect, it } from "vitest";
import {
  BARRIER_TYPES,
  CLOSE_CODES,
  COMMAND_KINDS,
  DURABLE_TYPES,
  EPHEMERAL_TYPES,
  ERROR_CODES,
  FAILURE_CODES,
  MAX_BATCH_BYTES,
  MAX_EVENT_BYTES,
  MAX_FRAME_BYTES,
  MAX_INLINE_BYTES,
  TERMINAL_TYPES,
  TRANSITIONS,
  closeAdvice,
  commandVerdict,
  formatCursor,
  isBarrier,
  isErrorCode,
  isEventType,
  isRunCommandType,
  isTerminal,
  type RunCommandType,
  type RunStatus,
} from "../src/index.ts";
import { isProgress } from "../src/event-kinds.ts";
import { runStateSchema } from "../src/schemas.ts";

describe("close codes", () => {
  it("[TAB1] have one row each, and advice", () => {
    expect(new Set(CLOSE_CODES.map((row) => row.code)).size).toBe(CLOSE_CODES.length);
    expect(new Set(CLOSE_CODES.map((row) => row.name)).size).toBe(CLOSE_CODES.length);
    expect(Object.fromEntries(CLOSE_CODES.map((row) => [row.code, closeAdvice(row.code)]))).toEqual(
      {
        1000: "never",
        1008: "never",
        1009: "backoff",
        1012: "now",
        1013: "backoff",
        4400: "never",
        4401: "refresh",
        4403: "never",
        4408: "now",
        4410: "now",
        4429: "backoff",
      },
    );
  });

  it("[TAB1] outside of the table nobody decided anything: come back", () => {
    for (const code of [1001, 1005, 1006, 1011, 1015, 3000, 4999, 0, -1, Number.NaN]) {
      expect(closeAdvice(code)).toBe("now");
    }
  });
});

describe("error codes", () => {
  it.each(Object.entries(ERROR_CODES))("[TAB2] %s: status and retry agree", (_, row) => {
    expect(row.retry).toBe(row.status === 429 || row.status >= 500);
    expect([400, 401, 403, 404, 405, 409, 413, 422, 426, 429, 500, 503]).toContain(row.status);
    expect(row.summary).toMatch(/\.$/);
  });

  it("[TAB2] the table's own members only are codes", () => {
    expect(isErrorCode("stale")).toBe(true);
    for (const other of ["", "constructor", "__proto__", "toString", "Stale"])
      expect(isErrorCode(other)).toBe(false);
  });

  it("[TAB2] failure codes are not error codes, but for the one that is both", () => {
    const both = Object.keys(FAILURE_CODES).filter(isErrorCode);
    expect(both).toEqual(["agent_unavailable"]);
  });
});

describe("transitions", () => {
  const statuses: readonly RunStatus[] = runStateSchema.shape.status.options;
  const commands: readonly RunCommandType[] = Object.keys(COMMAND_KINDS).filter(isRunCommandType);

  it("[TAB3] have a cell for every status and every command to a run", () => {
    expect(commands.length).toBe(10);
    expect(statuses.length).toBe(10);
    expect(Object.keys(TRANSITIONS).sort()).toEqual([...statuses].sort());
    for (const row of Object.values(TRANSITIONS))
      expect(Object.keys(row).sort()).toEqual([...commands].sort());
  });

  it.each(statuses)("[TAB3] %s: every command has an event, or an error code", (status) => {
    for (const command of commands) {
      const transition = TRANSITIONS[status][command];
      const verdict = commandVerdict(status, command);
      if ("code" in transition) {
        expect(isErrorCode(transition.code)).toBe(true);
        expect(verdict).toEqual({ ok: false, code: transition.code });
      } else {
        expect(DURABLE_TYPES).toContain(transition.event);
        expect(verdict).toEqual({ ok: true });
      }
    }
  });

  it.each(commands)("[TAB3] %s: absent is not found, and an ended run is over", (command) => {
    expect(commandVerdict("absent", command)).toEqual({ ok: false, code: "not_found" });
    const over = command === "run.retry" ? { ok: true } : { ok: false, code: "run_ended" };
    for (const status of ["completed", "failed", "cancelled"] as const)
      expect(commandVerdict(status, command)).toEqual(over);
  });

  it("[TAB3] a run can be cancelled from the moment it is queued until it ends", () => {
    const cancellable = statuses.filter((status) => commandVerdict(status, "run.cancel").ok);
    expect(cancellable).toEqual([
      "queued",
      "running",
      "waiting_approval",
      "waiting_tools",
      "waiting_input",
      "interrupted",
    ]);
  });

  it("[TAB3] pause and resume go together", () => {
    for (const status of [
      "running",
      "waiting_approval",
      "waiting_tools",
      "waiting_input",
    ] as const) {
      expect([
        commandVerdict(status, "run.interrupt").ok,
        commandVerdict(status, "run.resume").ok,
      ]).toEqual([true, false]);
    }
    expect([
      commandVerdict("interrupted", "run.interrupt").ok,
      commandVerdict("interrupted", "run.resume").ok,
    ]).toEqual([false, true]);
  });
});

describe("event kinds", () => {
  it("[TAB4] there are three terminals, and each is a barrier", () => {
    expect([...TERMINAL_TYPES].sort()).toEqual(["run.cancelled", "run.completed", "run.failed"]);
    expect([...BARRIER_TYPES].sort()).toEqual(
      [...TERMINAL_TYPES, "run.interrupted", "run.resumed", "step.superseded"].sort(),
    );
    for (const type of TERMINAL_TYPES)
      expect([isTerminal(type), isBarrier(type)]).toEqual([true, true]);
  });

  it("[TAB4] a type is durable or ephemeral, not both", () => {
    expect(
      DURABLE_TYPES.filter((type) => (EPHEMERAL_TYPES as readonly string[]).includes(type)),
    ).toEqual([]);
    for (const type of ["run.levitated", "constructor", "__proto__", ""]) {
      expect([isEventType(type), isTerminal(type), isBarrier(type), isProgress(type)]).toEqual([
        false,
        false,
        false,
        false,
      ]);
    }
  });

  it("[TAB4] what a doomed attempt repeats each time is no progress", () => {
    for (const type of [
      "run.started",
      "run.resumed",
      "step.started",
      "step.superseded",
      "message.started",
      "model.chunk",
      "tool_call.status",
    ]) {
      expect(isProgress(type), type).toBe(false);
    }
  });
});

describe("limits", () => {
  it("[TAB6] the largest event with its cursor is a frame, and a batch", () => {
    const cursor = formatCursor({
      seq: Number.MAX_SAFE_INTEGER,
      streamSeq: Number.MAX_SAFE_INTEGER,
      tag: "zzzzzzz",
    });
    expect(MAX_EVENT_BYTES + `,"cursor":"${cursor}"`.length).toBeLessThanOrEqual(MAX_FRAME_BYTES);
    expect(MAX_EVENT_BYTES).toBeLessThanOrEqual(MAX_BATCH_BYTES);
    // Two values that may be large, and their names.
    expect(2 * MAX_INLINE_BYTES).toBeLessThan(MAX_EVENT_BYTES);
  });
});
