import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { mergePatch } from "../src/index.ts";
import { seed } from "./seed.ts";

describe("merge patch", () => {
  // RFC 7396, appendix A.
  it.each([
    ['{"a":"b"}', '{"a":"c"}', '{"a":"c"}'],
    ['{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'],
    ['{"a":"b"}', '{"a":null}', "{}"],
    ['{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'],
    ['{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'],
    ['{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'],
    ['{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'],
    ['{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'],
    ['["a","b"]', '["c","d"]', '["c","d"]'],
    ['{"a":"b"}', '["c"]', '["c"]'],
    ['{"a":"foo"}', "null", "null"],
    ['{"a":"foo"}', '"bar"', '"bar"'],
    ['{"e":null}', '{"a":1}', '{"e":null,"a":1}'],
    ["[1,2]", '{"a":"b","c":null}', '{"a":"b"}'],
    ["{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'],
  ])("[PAT1] %s with %s is %s", (target, patch, result) => {
    expect(mergePatch(JSON.parse(target), JSON.parse(patch))).toStrictEqual(JSON.parse(result));
  });

  it("[PAT1] does what the RFC's pseudo-code does", () => {
    const reference = (target: unknown, patch: unknown): unknown => {
      if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
      const base =
        typeof target === "object" && target !== null && !Array.isArray(target) ? target : {};
      const result = new Map<string, unknown>(Object.entries(base));
      for (const [name, value] of Object.entries(patch)) {
        if (value === null) result.delete(name);
        else result.set(name, reference(result.get(name), value));
      }
      return Object.fromEntries(result);
    };
    const keys = fc.constantFrom("a", "b", "c");
    const { json } = fc.letrec<{ json: unknown }>((tie) => ({
      json: fc.oneof(
        { maxDepth: 4 },
        fc.constantFrom(null, 1, "x", true),
        fc.array(tie("json"), { maxLength: 2 }),
        fc.dictionary(keys, tie("json"), { noNullPrototype: true }),
      ),
    }));
    fc.assert(
      fc.property(json, json, (target, patch) => {
        const before = JSON.stringify([target, patch]);
        const merged = mergePatch(target, patch);
        expect(merged).toStrictEqual(reference(target, patch));
        expect(JSON.stringify([target, patch])).toBe(before);
      }),
      { seed, numRuns: 2_000 },
    );
  });

  it("[PAT2] gives and reaches no prototype", () => {
    const patch: unknown = JSON.parse(
      '{"__proto__":{"polluted":1},"a":{"__proto__":{"polluted":1},"b":1},"constructor":{"prototype":{"polluted":1}}}',
    );
    const merged = mergePatch({ a: {} }, patch);
    expect(JSON.stringify(merged)).toBe('{"a":{"b":1},"constructor":{"prototype":{"polluted":1}}}');
    expect(Object.getPrototypeOf(merged)).toBe(Object.prototype);
    expect("polluted" in {}).toBe(false);
    expect(mergePatch({}, JSON.parse('{"toString":null,"hasOwnProperty":null}'))).toEqual({});
  });

  it("[PAT2] leaves out what a target brought along", () => {
    const target: unknown = JSON.parse('{"__proto__":{"polluted":1},"a":1}');
    const merged = mergePatch(target, { b: 2 });
    expect(JSON.stringify(merged)).toBe('{"a":1,"b":2}');
    expect(Object.getPrototypeOf(merged)).toBe(Object.prototype);
  });

  it("[PAT3] shares what stays, and gives the target back if nothing changes", () => {
    const target = { kept: { deep: [1] }, changed: { a: 1 } };
    const merged = mergePatch(target, { changed: { a: 2 } });
    expect(merged).toEqual({ kept: { deep: [1] }, changed: { a: 2 } });
    expect(Reflect.get(Object(merged), "kept")).toBe(target.kept);
    expect(mergePatch(target, { changed: { a: 1 }, absent: null })).toBe(target);
  });
});
