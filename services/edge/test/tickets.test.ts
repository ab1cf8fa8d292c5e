import { SignJWT } from "jose";
import { createSecretKey } from "node:crypto";
import { describe, expect, test } from "vitest";
import { StreamTickets } from "../src/auth/stream-tickets.ts";

const KEY = "the first key, of 32 bytes or more";
const NEXT = "another key, it has 32 bytes too..";
const ANN = { tenant: "acme", user: "ann@example.org" };
const RUN = { session: "ses_1", run: "run_1" };
const NOW = 1_800_000_000_000;

const at = (keys: readonly string[], now = NOW): StreamTickets =>
  new StreamTickets(keys, () => now);

async function issued(
  tickets: StreamTickets,
  scope: { session: string; run: string | undefined } = RUN,
): Promise<string> {
  const found = await tickets.issue(ANN, scope, NOW + 60_000);
  if (found === undefined) throw new Error("no ticket was given");
  return found.ticket;
}

describe("[TIX1] a stream ticket", () => {
  test("says at any node with the key whose it is, what for, and until when", async () => {
    const ticket = await issued(at([KEY]));
    expect(await at([KEY]).redeem(ticket)).toEqual({
      ok: true,
      principal: { ...ANN, expiresAt: NOW + 60_000 },
      scope: RUN,
    });
    const whole = await issued(at([KEY]), { session: "ses_1", run: undefined });
    expect(await at([KEY]).redeem(whole)).toMatchObject({
      scope: { session: "ses_1", run: undefined },
    });
    expect(ticket.length).toBeLessThan(400);
  });

  test("expires", async () => {
    const ticket = await issued(at([KEY]));
    expect(await at([KEY], NOW + 59_000).redeem(ticket)).toMatchObject({ ok: true });
    const late = await at([KEY], NOW + 60_000).redeem(ticket);
    expect(late).toEqual({ ok: false, message: expect.stringContaining("expired") as string });
  });

  test("of the key before is taken until that goes; without a key there are none", async () => {
    const old = await issued(at([KEY]));
    expect((await at([NEXT, KEY]).redeem(old)).ok).toBe(true);
    expect((await at([KEY]).redeem(await issued(at([NEXT, KEY])))).ok).toBe(false);
    expect((await at([NEXT]).redeem(old)).ok).toBe(false);
    expect(await at([]).issue(ANN, RUN, NOW + 60_000)).toBeUndefined();
    expect((await at([]).redeem(old)).ok).toBe(false);
  });

  test("is taken as it was made, and nothing else is one; the answer has none of it", async () => {
    const good = await issued(at([KEY]));
    const [head = "", claims = "", signature = ""] = good.split(".");
    const kid = (JSON.parse(Buffer.from(head, "base64url").toString("utf8")) as { kid: string })
      .kid;
    const encoded = (value: object): string =>
      Buffer.from(JSON.stringify(value)).toString("base64url");
    const signed = (header: object, more: object, key = KEY): Promise<string> =>
      new SignJWT({
        tenant: "acme",
        session: "ses_1",
        sub: "ann",
        aud: "stream",
        exp: NOW / 1_000 + 60,
        ...more,
      })
        .setProtectedHeader({ alg: "HS256", typ: "tl-stream+jwt", kid, ...header })
        .sign(createSecretKey(key, "utf8"));
    expect((await at([KEY]).redeem(await signed({}, {}))).ok).toBe(true);
    const other = Buffer.from(claims, "base64url").toString("utf8").replace("run_1", "run_2");
    for (const bad of [
      "",
      "x",
      good.slice(0, -4),
      `${head}.${Buffer.from(other).toString("base64url")}.${signature}`,
      `${encoded({ alg: "none", typ: "tl-stream+jwt", kid })}.${claims}.`,
      await signed({}, {}, NEXT),
      await signed({ typ: "JWT" }, {}),
      await signed({ alg: "HS512" }, {}, "x".repeat(64)),
      await signed({ kid: "unknown" }, {}),
      await signed({}, { aud: "connect" }),
      await signed({}, { exp: undefined }),
      await signed({}, { session: "a.*" }),
      await signed({}, { tenant: undefined }),
      await signed({}, { sub: "" }),
      await signed({}, { note: "x".repeat(3_000) }),
    ]) {
      const found = await at([KEY]).redeem(bad);
      expect([bad, found]).toEqual([
        bad,
        { ok: false, message: "the ticket is none that this node knows" },
      ]);
    }
  });
});
