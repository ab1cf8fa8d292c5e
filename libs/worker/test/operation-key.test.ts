import { isId } from "@throughline/protocol";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { operationId, Place } from "../src/operation-key.ts";

describe("operation keys", () => {
  it("[OPS1] count the operations of a name within their place", () => {
    const root = new Place();
    expect(root.next("scan").key).toBe("scan#1");
    expect(root.next("read").key).toBe("read#1");
    expect(root.next("scan").key).toBe("scan#2");
    const inner = new Place("scan#2");
    expect(inner.next("read")).toEqual({ key: "scan#2/read#1", scope: "scan#2/read", n: 1 });
    expect(inner.nextUnnamed("@emit").key).toBe("scan#2/@emit#1");
  });

  it("[OPS1] no two places share a key, whatever the names", () => {
    const name = fc.string({
      unit: fc.constantFrom("a", "/", "#", "@", "%", "1", "2"),
      minLength: 1,
      maxLength: 4,
    });
    const path = fc.array(name, { minLength: 1, maxLength: 3 });
    const keyOf = (names: readonly string[]): string =>
      names.reduce((parent, one) => new Place(parent).next(one).key, "");
    fc.assert(
      fc.property(path, path, (a, b) => {
        if (JSON.stringify(a) !== JSON.stringify(b)) expect(keyOf(a)).not.toBe(keyOf(b));
      }),
      { numRuns: 2000 },
    );
    expect(new Place().next("@message").key).not.toBe(new Place().nextUnnamed("@message").key);
  });

  it("[OPS1] ids are legal, differ by kind, key and attempt, and are the same in every process", () => {
    const ids = [
      operationId("stp", "scan#1", "1"),
      operationId("stp", "scan#1", "2"),
      operationId("stp", "scan#2", "1"),
      operationId("msg", "scan#1", "1"),
      operationId("msg", "scan#1"),
    ];
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.every(isId)).toBe(true);
    expect(operationId("stp", "scan#1", "1")).toBe("stp_K6FpZNwlFmxVqekYGscsvw");
  });

  it("[OPS1] a key that the envelope has no room for is refused", () => {
    expect(() => new Place("x".repeat(500)).next("y".repeat(20))).toThrow(RangeError);
  });
});
