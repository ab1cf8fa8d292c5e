import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { readFrame } from "../src/index.ts";

const event = { session_id: "ses_1", run_id: "run_1", ts: 1, payload: {} };

describe("frames as a client sees them", () => {
  it("[FRM1] the two kinds of command.rejected are told apart", () => {
    const verdict = {
      type: "command.rejected",
      ...event,
      seq: 3,
      payload: { id: "c", code: "stale", message: "" },
    };
    expect(readFrame(verdict).kind).toBe("durable");
    expect(
      readFrame({ type: "command.rejected", id: "c", code: "rate_limited", message: "" }).kind,
    ).toBe("control");
  });

  it.each([
    ["a control frame", { type: "weather" }],
    ["a durable event", { type: "run.levitated", ...event, seq: 1 }],
    ["an ephemeral event", { type: "model.whisper", ...event }],
    ["an ephemeral event of a session", { type: "mood", session_id: "ses_1", payload: 1 }],
    ["what was an object once", { type: "custom", ...event, seq: 1, payload: "text" }],
  ])("[FRM2] %s of a newer version is unknown, not wrong", (_, frame) => {
    expect(readFrame(frame).kind).toBe("unknown");
  });

  it.each([
    null,
    1,
    "text",
    [],
    {},
    { type: 1 },
    { type: "custom", seq: 1, payload: {} },
    { type: "custom", ...event, seq: "1" },
    { type: "custom", ...event, seq: 1.5 },
  ])("[FRM2] %j is malformed", (frame) => {
    expect(readFrame(frame).kind).toBe("malformed");
  });
});

describe("the package's entry", () => {
  const source = new URL("../src/", import.meta.url);

  /** Files that a file loads at run time: imports of types alone are erased. */
  function loads(file: URL): string[] {
    const text = readFileSync(file, "utf8");
    const statements = text.matchAll(
      /^(?:import|export)\s+(?!type\b)(?:[^;]*?\sfrom\s+)?"([^"]+)";/gm,
    );
    return [...statements].map((match) => match[1] ?? "");
  }

  function reached(from: URL, seen = new Set<string>()): Set<string> {
    for (const name of loads(from)) {
      const target = name.startsWith(".") ? new URL(name, from).href : name;
      if (seen.has(target)) continue;
      seen.add(target);
      if (name.startsWith(".")) reached(new URL(target), seen);
    }
    return seen;
  }

  it("[WIRE5] loads nothing but its own files", () => {
    const files = [...reached(new URL("index.ts", source))];
    expect(files.filter((file) => !file.startsWith(source.href))).toEqual([]);
    // So that the search itself is known to work: it finds the reducer, and zod from the other entry.
    expect(files).toContain(new URL("state/messages.ts", source).href);
    expect([...reached(new URL("schemas.ts", source))]).toContain("zod");
  });

  it("[WIRE5] uses nothing that only Node has", () => {
    const all = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((name) =>
      name.endsWith(".ts"),
    );
    expect(all.length).toBeGreaterThan(30);
    for (const name of all) {
      const text = readFileSync(new URL(name, source), "utf8");
      expect(text, name).not.toMatch(/\b(?:from "node:|Buffer\.|process\.|require\()/);
    }
  });
});
