import type { Msg } from "@nats-io/nats-core";
import { MsgImpl } from "@nats-io/nats-core/internal";
import { randomOf, seededRandom } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { LogCorrupt } from "../src/errors.ts";
import { HeaderText } from "../src/header-text.ts";
import { logMessage, sequenceOf } from "../src/headers.ts";
import { ephemeralMessage, liveMessage } from "../src/live-message.ts";

const SUBJECT = "tl.lv.0.acme.ses_1.run_1.e";

/** A message as the client library hands it over: header block and body in one piece of a larger buffer. */
function message(block: string, body = "{}", subject = SUBJECT): Msg {
  const head = Buffer.from(block, "latin1");
  const whole = Buffer.concat([Buffer.from("before"), head, Buffer.from(body)]);
  const data = new Uint8Array(whole.buffer, whole.byteOffset + 6, head.length + body.length);
  const arg = {
    subject: Buffer.from(subject),
    sid: 1,
    hdr: head.length,
    size: data.length,
  };
  // The library's own class and interface differ in what may be undefined.
  const made: unknown = new MsgImpl(arg, data, {} as never);
  return made as Msg;
}

function block(fields: readonly (readonly [string, string])[], colon = ": "): string {
  return `NATS/1.0\r\n${fields.map(([name, value]) => `${name}${colon}${value}\r\n`).join("")}\r\n`;
}

const PLACE = [
  ["Nats-Expected-Last-Subject-Sequence", "97"],
  ["Tl-Seq", "184"],
  ["Tl-Last", "186"],
  ["Tl-Prev", "98"],
  ["Nats-Stream", "TL_EV_0"],
  ["Nats-Subject", "tl.ev.0.acme.ses_1.run_1.e"],
  ["Nats-Sequence", "101"],
  ["Nats-Last-Sequence", "98"],
] as const;

describe("headers of a live copy", () => {
  test("[WRT9] [TAIL8] read in one pass they say what they say read one by one, in any order and spacing", () => {
    const random = seededRandom();
    const optional = [
      ["Tl-Attempt", "3"],
      ["Tl-Writer", "abcDEF-_1"],
      ["Tl-Worker", "runtime-1-x"],
      ["Tl-Epoch", "e-_1:2"],
      ["Tl-Cmd", "9007199254740991"],
      ["Tl-Barrier", "185"],
      ["Tl-Settled", "186"],
      ["Tl-End", "1"],
      ["traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
      ["Tl-Unknown", "x"],
      ["Nats-Time-Stamp", "2026-11-30T22:18:58.335219955Z"],
    ] as const;
    for (let i = 0; i < 500; i += 1) {
      const rng = randomOf(random.int(2 ** 31));
      const fields = rng.shuffle([...PLACE, ...optional.filter(() => rng.chance(0.7))]);
      const m = message(block(fields, rng.chance(0.5) ? ": " : ":"));
      const text = HeaderText.of(m);
      const slow = logMessage(SUBJECT, sequenceOf(text), text, m.data);
      const fast = liveMessage(m, rng.chance(0.5) ? "run_1" : undefined);
      const { writer, worker } = fast;
      expect({ ...fast, writer, worker }).toEqual(slow);
    }
  });

  test("[TAIL8] a header that is missing or no whole number is a fault, not a guess", () => {
    for (const [name] of PLACE.filter(([n]) =>
      ["Tl-Seq", "Tl-Last", "Tl-Prev", "Nats-Sequence"].includes(n),
    )) {
      const without = PLACE.filter(([n]) => n !== name);
      expect(() => liveMessage(message(block(without)), "run_1")).toThrow(LogCorrupt);
      for (const bad of ["", "x", "-1", "1.5", "1e3", "9007199254740993", "1 2"]) {
        expect(() => liveMessage(message(block([...without, [name, bad]])), "run_1")).toThrow(
          LogCorrupt,
        );
      }
    }
  });

  test("[STA1] the job of an agent with the name of the other lane is a job", () => {
    const fields = [
      ["Tl-Seq", "1"],
      ["Tl-Last", "1"],
      ["Tl-Prev", "0"],
      ["Nats-Sequence", "7"],
    ] as const;
    const m = message(block(fields), "{}", "tl.lv.0.acme.ses_1.run_1.q.e");
    expect(liveMessage(m, undefined)).toMatchObject({ lane: "q", run: "run_1" });
    const text = HeaderText.of(m);
    expect(logMessage("tl.ev.0.acme.ses_1.run_1.q.e", 7, text, m.data).lane).toBe("q");
  });

  test("[LANE4] an ephemeral message without its place is nobody's", () => {
    const all = [
      ["Tl-Attempt", "2"],
      ["Tl-Epoch", "e"],
      ["Tl-After", "5"],
    ] as const;
    const subject = "tl.ep.0.acme.ses_1.run_1";
    expect(ephemeralMessage(message(block(all), "{}", subject), undefined)).toMatchObject({
      run: "run_1",
      attempt: 2,
      epoch: "e",
      after: 5,
    });
    for (const [name] of [all[0], all[2]]) {
      const without = all.filter(([n]) => n !== name);
      expect(ephemeralMessage(message(block(without), "{}", subject), "run_1")).toBeUndefined();
      const bad = [...without, [name, "x"] as const];
      expect(ephemeralMessage(message(block(bad), "{}", subject), "run_1")).toBeUndefined();
    }
  });
});
