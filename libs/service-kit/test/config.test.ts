import { hostname } from "node:os";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import {
  ConfigError,
  flag,
  list,
  loadConfig,
  oneOf,
  optionalPort,
  port,
  sharedSettings,
  text,
  wholeNumber,
} from "@throughline/service-kit";

const schema = z.object({
  TL_PORT: port(8080),
  TL_SHARED_PORT: optionalPort(),
  TL_COUNT: wholeNumber(3, { min: 1, max: 9 }),
  TL_DEV: flag(false),
  TL_MODE: oneOf(["fast", "safe"], "safe"),
  TL_ROOTS: list(":"),
  TL_NAME: text("x"),
  TL_SECRET_KEY: oneOf(["right"], "right"),
});

function problemsOf(env: Record<string, string>): string {
  try {
    loadConfig(schema, env);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error("nothing was wrong");
}

describe("loadConfig", () => {
  it("[CFG1] gives defaults to what is not set, and to what is set to nothing", () => {
    const defaults = {
      TL_PORT: 8080,
      TL_COUNT: 3,
      TL_DEV: false,
      TL_MODE: "safe",
      TL_ROOTS: [],
      TL_NAME: "x",
      TL_SECRET_KEY: "right",
    };
    expect(loadConfig(schema, {})).toEqual(defaults);
    expect(
      loadConfig(schema, { TL_PORT: "", TL_SHARED_PORT: "", TL_DEV: "", TL_ROOTS: "" }),
    ).toEqual(defaults);
  });

  it("[CFG2] reads each kind of setting", () => {
    const env = {
      TL_PORT: "0",
      TL_SHARED_PORT: "81",
      TL_COUNT: "9",
      TL_DEV: "1",
      TL_MODE: "fast",
      TL_ROOTS: "/a: /b ::",
    };
    expect(loadConfig(schema, { ...env, OTHER: "ignored" })).toMatchObject({
      TL_PORT: 0,
      TL_SHARED_PORT: 81,
      TL_COUNT: 9,
      TL_DEV: true,
      TL_MODE: "fast",
      TL_ROOTS: ["/a", "/b"],
    });
  });

  it("[CFG3] names every variable that is wrong, with its value and what it should be", () => {
    expect(
      problemsOf({
        TL_PORT: "80a",
        TL_SHARED_PORT: "70000",
        TL_COUNT: "10",
        TL_DEV: "yes",
        TL_MODE: "quick",
      }),
    ).toBe(
      [
        "5 settings are wrong:",
        '  TL_PORT is "80a" and must be a whole number from 0 to 65535',
        '  TL_SHARED_PORT is "70000" and must be a whole number from 0 to 65535',
        '  TL_COUNT is "10" and must be a whole number from 1 to 9',
        '  TL_DEV is "yes" and must be 1 or 0 (or true or false)',
        '  TL_MODE is "quick" and must be one of fast, safe',
      ].join("\n"),
    );
  });

  it.each(["1e3", "0x10", " 5", "5.0", "-1", "+1", "NaN"])(
    "[CFG3] takes %j for no whole number",
    (value) => {
      expect(problemsOf({ TL_PORT: value })).toContain("a setting is wrong:\n  TL_PORT");
    },
  );

  it("[CFG4] does not show the value of a secret", () => {
    expect(problemsOf({ TL_SECRET_KEY: "hunter2" })).not.toContain("hunter2");
  });

  it("[CFG5] shares settings between services", () => {
    const shared = loadConfig(z.object(sharedSettings), {
      TL_NATS_URL: "nats://a:1, nats://b:2",
      TL_NODE_ID: "n-1",
    });
    expect(shared).toMatchObject({
      TL_NATS_URL: ["nats://a:1", "nats://b:2"],
      TL_SHARDS: 4,
      TL_REPLICAS: 1,
    });
    expect(() => loadConfig(z.object(sharedSettings), { TL_NODE_ID: "a.b" })).toThrow("TL_NODE_ID");
  });

  it("[CFG6] names each process differently, after its machine", () => {
    const own = (): string => loadConfig(z.object(sharedSettings), {}).TL_NODE_ID;
    const machine = hostname().replaceAll(/[^A-Za-z0-9_-]/g, "-");
    expect(own()).toMatch(/^[A-Za-z0-9_-]{1,33}-[0-9a-z]{5}$/);
    expect(own().startsWith(machine.slice(0, 33))).toBe(true);
    expect(new Set(Array.from({ length: 20 }, own)).size).toBe(20);
  });
});
