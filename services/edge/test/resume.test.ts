import { describe, expect, test } from "vitest";
import { resumeRun, resumeSession } from "../src/fanout/resume.ts";

const found = { streamSeq: 50, prev: 40, firstSeq: 10, lastSeq: 13, tag: "mine" };
const at = (streamSeq: number, next: number): object => ({
  kind: "resume",
  position: { streamSeq, next },
});
const reset = (reason: string): object => ({ kind: "reset", reason });

describe("resuming a run", () => {
  test("[RES1] at the end of its own message it goes on behind it", () => {
    expect(resumeRun({ seq: 13, streamSeq: 50, tag: "mine" }, "mine", found)).toEqual(at(50, 0));
  });

  test("[RES2] inside a message it goes on at the next event of it", () => {
    expect(resumeRun({ seq: 10, streamSeq: 50, tag: "mine" }, "mine", found)).toEqual(at(50, 11));
    expect(resumeRun({ seq: 12, streamSeq: 50, tag: "mine" }, "mine", found)).toEqual(at(50, 13));
  });

  test("[RES3] its message gone, the next event there: nothing is lost", () => {
    expect(resumeRun({ seq: 9, streamSeq: 40, tag: "mine" }, "mine", found)).toEqual(at(40, 0));
  });

  test("[RES3] its message gone, and more: expired", () => {
    expect(resumeRun({ seq: 8, streamSeq: 39, tag: "mine" }, "mine", found)).toEqual(
      reset("cursor_expired"),
    );
    expect(resumeRun({ seq: 8, streamSeq: 39, tag: "mine" }, "mine", undefined)).toEqual(
      reset("cursor_expired"),
    );
  });

  test("[RES4] another run's or another incarnation's cursor is invalid", () => {
    expect(resumeRun({ seq: 13, streamSeq: 50, tag: "other" }, "mine", found)).toEqual(
      reset("cursor_invalid"),
    );
  });

  test("[RES4] a seq that is not in the message it names is invalid", () => {
    for (const seq of [9, 14]) {
      expect(resumeRun({ seq, streamSeq: 50, tag: "mine" }, "mine", found)).toEqual(
        reset("cursor_invalid"),
      );
    }
    expect(resumeRun({ seq: 12, streamSeq: 49, tag: "mine" }, "mine", found)).toEqual(
      reset("cursor_invalid"),
    );
  });

  test("[RES8] having seen nothing it begins at the first event, unless that is gone", () => {
    const nothing = { seq: 0, streamSeq: 0, tag: "mine" };
    expect(resumeRun(nothing, "mine", { ...found, prev: 0, firstSeq: 1 })).toEqual(at(0, 0));
    expect(resumeRun(nothing, "mine", undefined)).toEqual(at(0, 0));
    expect(resumeRun(nothing, "mine", found)).toEqual(reset("cursor_expired"));
    // Behind the first stored message: events would be passed over without a word.
    expect(resumeRun({ ...nothing, streamSeq: 50 }, "mine", found)).toEqual(
      reset("cursor_invalid"),
    );
    // Told before that the log begins behind 45: nothing is lost since.
    expect(resumeRun({ ...nothing, streamSeq: 45 }, "mine", found)).toEqual(at(45, 0));
  });
});

describe("resuming a session", () => {
  test("[RES6] its own message must be there, of the same run", () => {
    const cursor = { seq: 11, streamSeq: 50, tag: "mine" };
    expect(resumeSession(cursor, "origin", found)).toEqual(at(50, 12));
    expect(resumeSession(cursor, "origin", { ...found, tag: "other" })).toEqual(
      reset("cursor_invalid"),
    );
    expect(resumeSession(cursor, "origin", { ...found, streamSeq: 51 })).toEqual(
      reset("cursor_expired"),
    );
    expect(resumeSession(cursor, "origin", undefined)).toEqual(reset("cursor_expired"));
  });

  test("[RES8] having seen nothing it begins where it was issued, in the same stream only", () => {
    const cursor = { seq: 0, streamSeq: 45, tag: "origin" };
    expect(resumeSession(cursor, "origin", found)).toEqual(at(45, 0));
    expect(resumeSession(cursor, "elsewhere", found)).toEqual(reset("cursor_invalid"));
    expect(resumeSession(cursor, "origin", { ...found, prev: 46 })).toEqual(
      reset("cursor_expired"),
    );
  });
});
