import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { cursorTag, formatCursor, parseCursor } from "../src/index.ts";
import { seed } from "./seed.ts";

const place = fc.oneof(fc.nat(), fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }));
const id = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/);

describe("cursor", () => {
  it("[CUR1] is read as it was written", () => {
    fc.assert(
      fc.property(place, place, id, id, (seq, streamSeq, run, epoch) => {
        const cursor = { seq, streamSeq, tag: cursorTag(run, epoch) };
        expect(parseCursor(formatCursor(cursor))).toEqual(cursor);
      }),
      { seed },
    );
  });

  it.each([
    "",
    "1",
    "1-2",
    "1-2-",
    "-1-2-a",
    "1--2-a",
    "01-2-a",
    "1-02-a",
    "1-2-A",
    "1-2-a b",
    "1-2-a\n",
    " 1-2-a",
    "1-2-aaaaaaaa",
    "1.5-2-a",
    "1e3-2-a",
    "0x1-2-a",
    "9007199254740992-1-a",
    "1-9007199254740992-a",
    "99999999999999999-1-a",
    "١-2-a",
    "1-2-a-b",
  ])("[CUR2] %j is no cursor", (text) => {
    expect(parseCursor(text)).toBeUndefined();
  });

  it("[CUR2] what is no text is no cursor", () => {
    for (const value of [undefined, null, 1, {}, ["1-2-a"]])
      expect(parseCursor(value)).toBeUndefined();
  });

  it("[CUR2] whatever is read is written the same", () => {
    const near = fc.stringMatching(/^[0-9.e-]{0,20}-[0-9]{0,20}-[0-9a-zA-Z]{0,9}$/);
    fc.assert(
      fc.property(fc.oneof(near, fc.string()), (text) => {
        const cursor = parseCursor(text);
        if (cursor !== undefined) expect(formatCursor(cursor)).toBe(text);
      }),
      { seed, numRuns: 2_000 },
    );
  });

  it("[CUR3] the tag is the same in every version and language", () => {
    expect(cursorTag("run_1", "e1")).toBe("j15sxq");
    expect(cursorTag("run_1", "e2")).toBe("ir678r");
    expect(cursorTag("run_2", "e1")).toBe("1vejg5d");
  });

  it("[CUR3] the parts do not run together", () => {
    expect(cursorTag("ab", "c")).not.toBe(cursorTag("a", "bc"));
  });
});
