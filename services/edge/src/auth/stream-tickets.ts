/**
 * Stream tickets: what a native EventSource shows in place of a header, which it cannot send. One is good for
 * reading one run or session until it expires, as often as its holder reconnects, at any node that has the key.
 * Nothing is stored for it. What its user may read is looked up anew each time.
 */
import { isId } from "@throughline/protocol";
import { createHash, createSecretKey, type KeyObject } from "node:crypto";
import { errors, type JWTPayload, jwtVerify, SignJWT } from "jose";
import { z } from "zod";
import type { Principal } from "./principal.ts";

export interface TicketScope {
  readonly session: string;
  /** Undefined: the session and all its runs. */
  readonly run: string | undefined;
}

export type Redeemed =
  | { readonly ok: true; readonly principal: Principal; readonly scope: TicketScope }
  /** Says what is wrong, without the ticket's content. */
  | { readonly ok: false; readonly message: string };

/** RFC 7518: a key of HS256 has at least the size of its hash. */
export const SHORTEST_KEY_BYTES = 32;

const ALGORITHM = "HS256";
/** Neither can a token of somebody else's be a ticket, nor a ticket a token. */
const TYPE = "tl-stream+jwt";
const AUDIENCE = "stream";
/** A user's name has 256 characters; the rest is ids. */
const MAX_CHARS = 3_000;

const id = z.string().refine(isId);
const claims = z.object({
  sub: z.string().min(1).max(256),
  tenant: id,
  session: id,
  run: id.optional(),
  exp: z.number(),
});

export class StreamTickets {
  readonly #keys: ReadonlyMap<string, KeyObject>;
  readonly #signing: string | undefined;
  readonly #wallClock: () => number;

  /**
   * @param keys all of them are taken, the first one signs; none: there are no tickets
   * @param wallClock ms since the epoch
   */
  constructor(keys: readonly string[], wallClock: () => number) {
    const named = keys.map((key) => [nameOf(key), createSecretKey(key, "utf8")] as const);
    this.#keys = new Map(named);
    this.#signing = named[0]?.[0];
    this.#wallClock = wallClock;
  }

  /** Undefined where the node has no key. `expiresAt`: ms since the epoch; a ticket counts in whole seconds. */
  async issue(
    { tenant, user }: Principal,
    { session, run }: TicketScope,
    expiresAt: number,
  ): Promise<{ readonly ticket: string; readonly expiresAt: number } | undefined> {
    const kid = this.#signing;
    const key = kid === undefined ? undefined : this.#keys.get(kid);
    if (kid === undefined || key === undefined) return undefined;
    const exp = Math.floor(expiresAt / 1_000);
    const ticket = await new SignJWT({ tenant, session, ...(run === undefined ? {} : { run }) })
      .setProtectedHeader({ alg: ALGORITHM, typ: TYPE, kid })
      .setSubject(user)
      .setAudience(AUDIENCE)
      .setExpirationTime(exp)
      .sign(key);
    return { ticket, expiresAt: exp * 1_000 };
  }

  /** Never rejects. */
  async redeem(ticket: string): Promise<Redeemed> {
    const unknown = { ok: false, message: "the ticket is none that this node knows" } as const;
    if (ticket.length > MAX_CHARS) return unknown;
    let payload: JWTPayload;
    try {
      ({ payload } = await jwtVerify(
        ticket,
        ({ kid = "" }) => {
          const key = this.#keys.get(kid);
          if (key === undefined) throw new errors.JWSSignatureVerificationFailed();
          return key;
        },
        {
          algorithms: [ALGORITHM],
          typ: TYPE,
          audience: AUDIENCE,
          requiredClaims: ["exp"],
          currentDate: new Date(this.#wallClock()),
        },
      ));
    } catch (error) {
      if (!(error instanceof errors.JWTExpired)) return unknown;
      return { ok: false, message: "the ticket has expired: POST /v1/tickets gives another" };
    }
    const read = claims.safeParse(payload);
    if (!read.success) return unknown;
    const { tenant, sub: user, session, run, exp } = read.data;
    const principal = { tenant, user, expiresAt: exp * 1_000 };
    return { ok: true, principal, scope: { session, run } };
  }
}

/** Tells keys apart, and says nothing of them. */
function nameOf(key: string): string {
  return createHash("sha256").update(key).digest("base64url").slice(0, 8);
}
