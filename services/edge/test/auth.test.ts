import { describe, expect, test } from "vitest";
import { authorise, type Operation } from "../src/auth/grants.ts";
import { isLoopback, type RequestOrigin } from "../src/auth/local.ts";
import { isOriginEntry, Origins } from "../src/auth/origins.ts";
import { isNetwork, TrustedProxies } from "../src/auth/proxies.ts";
import { authenticate } from "../src/auth/token.ts";

function request(headers: Record<string, string> = {}, remoteAddress = "127.0.0.1"): RequestOrigin {
  return {
    remoteAddress,
    headers: new Map(Object.entries({ host: "localhost:8080", ...headers })),
  };
}
const LOCAL = {
  devTokens: true,
  proxies: new TrustedProxies([]),
  origins: new Origins({ allowed: [], local: true }),
};

describe("origins", () => {
  const from = (origin?: string): RequestOrigin => request(origin === undefined ? {} : { origin });
  const listed = new Origins({ allowed: ["https://App.example"], local: false });

  test("[CORS2] are those that are listed, to the letter; a program has none", () => {
    expect(listed.allows(from())).toBe(true);
    expect(listed.allows(from("https://app.example"))).toBe(true);
    for (const other of [
      "http://app.example",
      "https://app.example:8443",
      "https://sub.app.example",
      "https://app.example.evil.example",
      "https://app.example, https://evil.example",
      "http://localhost:3000",
      "null",
      "",
    ]) {
      expect([other, listed.allows(from(other))]).toEqual([other, false]);
    }
  });

  test("[CORS2] of this machine's pages in local mode, or all", () => {
    const local = new Origins({ allowed: [], local: true });
    expect(local.allows(from("http://localhost:3000"))).toBe(true);
    expect(local.allows(from("https://evil.example"))).toBe(false);
    expect(new Origins({ allowed: ["*"], local: false }).allows(from("null"))).toBe(true);
  });

  test("[CORS2] whose list has entries that no browser would send are refused at the start", () => {
    for (const entry of ["*", "https://app.example", "http://10.0.0.1:8080"]) {
      expect([entry, isOriginEntry(entry)]).toEqual([entry, true]);
    }
    for (const entry of [
      "app.example",
      "https://app.example/",
      "https://*.example",
      "ftp://a",
      "null",
    ]) {
      expect([entry, isOriginEntry(entry)]).toEqual([entry, false]);
    }
  });
});

describe("dev tokens", () => {
  test("[AUTH1] name a tenant and a user; a user may have dots", () => {
    expect(authenticate("dev.acme.ann", request(), LOCAL)).toEqual({
      ok: true,
      principal: { tenant: "acme", user: "ann" },
    });
    expect(authenticate("dev.acme.ann@example.org", request(), LOCAL)).toMatchObject({
      principal: { user: "ann@example.org" },
    });
  });

  test.each([
    undefined,
    "",
    "dev",
    "dev.",
    "dev.acme",
    "dev.acme.",
    "dev..ann",
    "dev.a*c.ann",
    "dev.a b.ann",
    "jwt.x.y",
    `dev.acme.${"u".repeat(257)}`,
  ])("[AUTH1] %s is none", (token) => {
    expect(authenticate(token, request(), LOCAL)).toMatchObject({
      ok: false,
      code: "unauthenticated",
    });
  });

  test("[AUTH1] outside of local mode none is taken", () => {
    expect(authenticate("dev.acme.ann", request(), { ...LOCAL, devTokens: false })).toMatchObject({
      ok: false,
      code: "unauthenticated",
    });
  });

  test.each([
    ["another machine", request({}, "192.168.1.5")],
    ["another machine by IPv6", request({}, "2001:db8::1")],
    ["a mapped other address", request({}, "::ffff:10.0.0.1")],
    ["a foreign Host (a rebound name)", request({ host: "evil.example:8080" })],
    ["a Host that only begins like a local one", request({ host: "localhost.evil.example" })],
    ["two Hosts", request({ host: "localhost, evil.example" })],
    ["a foreign Origin", request({ origin: "https://evil.example" })],
    [
      "an Origin that only begins like a local one",
      request({ origin: "http://localhost.evil.example" }),
    ],
    ["an Origin with a local user part", request({ origin: "http://localhost@evil.example" })],
    ["a sandboxed page", request({ origin: "null" })],
    ["a proxy: Forwarded", request({ forwarded: "for=1.2.3.4" })],
    ["a proxy: X-Forwarded-For", request({ "x-forwarded-for": "127.0.0.1" })],
    ["a proxy: X-Forwarded-Host", request({ "x-forwarded-host": "localhost" })],
    ["a proxy: X-Real-IP", request({ "x-real-ip": "127.0.0.1" })],
    ["a proxy: Via", request({ via: "1.1 proxy" })],
  ])("[AUTH1] one from %s is not taken", (_from, from) => {
    expect(authenticate("dev.acme.ann", from, LOCAL)).toMatchObject({
      ok: false,
      code: "forbidden",
    });
  });

  test("[AUTH1] no Host at all is not local", () => {
    const bare = { remoteAddress: "127.0.0.1", headers: new Map<string, string>() };
    expect(authenticate("dev.acme.ann", bare, LOCAL)).toMatchObject({
      ok: false,
      code: "forbidden",
    });
  });

  test.each(["localhost:3000", "127.0.0.1", "[::1]:8080", "LOCALHOST"])(
    "[AUTH1] Host and Origin may be %s",
    (host) => {
      const origin = `http://${host}`;
      expect(authenticate("dev.acme.ann", request({ host, origin }), LOCAL).ok).toBe(true);
    },
  );

  test("[AUTH1] loopback has several spellings, and look-alikes", () => {
    for (const yes of [
      "127.0.0.1",
      "127.9.9.9",
      "::1",
      "::ffff:127.0.0.1",
      "0000:0000:0000:0000:0000:0000:0000:0001",
      "0000:0000:0000:0000:0000:ffff:7f00:0001",
    ]) {
      expect(isLoopback(yes), yes).toBe(true);
    }
    for (const no of [
      "128.0.0.1",
      "127.0.0.1.evil",
      "::2",
      "::ffff:128.0.0.1",
      "0000:0000:0000:0000:0000:ffff:0a00:0001",
      "",
    ]) {
      expect(isLoopback(no), no).toBe(false);
    }
  });

  test("[AUTH3] a refusal does not show the token", () => {
    const refusals = [
      authenticate("secret-abc", request(), LOCAL),
      authenticate("dev.secret-abc*.x", request(), LOCAL),
      authenticate("dev.t.secret-abc", request({}, "10.0.0.1"), LOCAL),
    ];
    expect(JSON.stringify(refusals)).not.toContain("secret-abc");
  });
});

describe("grants", () => {
  const session = {
    tenant: "acme",
    owner: "ann",
    members: { bob: "operator", vic: "viewer", odd: "wizard" },
  };
  const may = (user: string, operation: Operation, tenant = "acme"): string => {
    const verdict = authorise({ tenant, user }, operation, session);
    return verdict.ok ? "ok" : verdict.code;
  };
  const all: Operation[] = ["read", "run.start", "run.steer"];

  test("[AUTH2] owner and operator do everything, a viewer reads", () => {
    expect(all.map((operation) => may("ann", operation))).toEqual(["ok", "ok", "ok"]);
    expect(all.map((operation) => may("bob", operation))).toEqual(["ok", "ok", "ok"]);
    expect(all.map((operation) => may("vic", operation))).toEqual(["ok", "forbidden", "forbidden"]);
  });

  test("[AUTH2] [SUB3] no part in it, an unknown role, another tenant, no session: all the same", () => {
    const refusals = [
      authorise({ tenant: "acme", user: "eve" }, "read", session),
      authorise({ tenant: "acme", user: "odd" }, "read", session),
      authorise({ tenant: "acme", user: "constructor" }, "read", session),
      authorise({ tenant: "other", user: "ann" }, "read", session),
      authorise({ tenant: "acme", user: "ann" }, "read", undefined),
    ];
    expect(refusals[0]).toMatchObject({ ok: false, code: "not_found" });
    for (const refusal of refusals) expect(refusal).toEqual(refusals[0]);
  });
});

describe("a load balancer in front", () => {
  const options = { ...LOCAL, proxies: new TrustedProxies(["127.0.0.1", "10.1.0.0/16"]) };
  const code = (headers: Record<string, string>, peer?: string): string => {
    const result = authenticate("dev.acme.ann", request(headers, peer), options);
    return result.ok ? "taken" : result.code;
  };

  test.each([
    ["the machine's own program", "127.0.0.1", "127.0.0.1"],
    ["IPv6, and a mapped peer", "::1", "::ffff:127.0.0.1"],
    ["a second proxy in a trusted network", "127.0.0.1, 10.1.2.3", "127.0.0.1"],
  ])("[AUTH6] whom a trusted proxy names is the client: %s", (_what, forwarded, peer) => {
    const headers = { "x-forwarded-for": forwarded, "x-forwarded-proto": "http" };
    expect(code(headers, peer)).toBe("taken");
  });

  test.each([
    ["another machine", { "x-forwarded-for": "192.0.2.7" }, "127.0.0.1"],
    ["one that claims to be local", { "x-forwarded-for": "127.0.0.1, 192.0.2.7" }, "127.0.0.1"],
    ["what is no address", { "x-forwarded-for": "127.0.0.1, unknown" }, "127.0.0.1"],
    ["a proxy that is not trusted", { "x-forwarded-for": "127.0.0.1" }, "10.2.0.1"],
    ["a trusted proxy that names nobody", { "x-forwarded-proto": "https" }, "127.0.0.1"],
    ["a further proxy's trace", { "x-forwarded-for": "127.0.0.1", via: "1.1 cdn" }, "127.0.0.1"],
    ["a foreign Host", { "x-forwarded-for": "127.0.0.1", host: "evil.example" }, "127.0.0.1"],
  ])("[AUTH6] [AUTH1] not local: %s", (_what, headers, peer) => {
    expect(code(headers, peer)).toBe("forbidden");
  });

  test("[AUTH6] networks are checked when they are read", () => {
    expect(["10.0.0.0/8", "::1", "fd00::/64", "192.0.2.1"].every(isNetwork)).toBe(true);
    for (const wrong of [
      "",
      "localhost",
      "10.0.0.0/33",
      "10.0.0.0/",
      "10/8",
      "::1/129",
      "1.2.3.4/8/8",
    ])
      expect([wrong, isNetwork(wrong)]).toEqual([wrong, false]);
  });
});
