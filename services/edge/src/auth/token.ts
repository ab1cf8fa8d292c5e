import { isId } from "@throughline/protocol";
import { notLocal, type RequestOrigin } from "./local.ts";
import { ORIGIN_REFUSED, type Origins } from "./origins.ts";
import type { Principal } from "./principal.ts";
import type { TrustedProxies } from "./proxies.ts";

export interface AuthOptions {
  /** Local mode: `dev.<tenant>.<user>` is a token. */
  readonly devTokens: boolean;
  readonly proxies: TrustedProxies;
  readonly origins: Origins;
}

export type Authenticated =
  | { readonly ok: true; readonly principal: Principal }
  | {
      readonly ok: false;
      readonly code: "unauthenticated" | "forbidden";
      readonly message: string;
    };

/** Who a token says is asking, and whether it may be used from there. Never puts the token into a message. */
export function authenticate(
  token: string | undefined,
  request: RequestOrigin,
  options: AuthOptions,
): Authenticated {
  if (!options.origins.allows(request)) {
    return { ok: false, code: "forbidden", message: ORIGIN_REFUSED };
  }
  if (token === undefined || token === "") {
    return { ok: false, code: "unauthenticated", message: "credentials are required" };
  }
  const [kind, tenant, ...user] = token.split(".");
  if (kind !== "dev" || !options.devTokens) {
    return { ok: false, code: "unauthenticated", message: "the token is not valid here" };
  }
  const reason = notLocal(options.proxies.seenThrough(request));
  if (reason !== undefined) {
    return {
      ok: false,
      code: "forbidden",
      message: `dev tokens are taken from local programs only, and of this request ${reason}`,
    };
  }
  const name = user.join(".");
  if (!isId(tenant) || name === "" || name.length > 256) {
    return {
      ok: false,
      code: "unauthenticated",
      message: "a dev token reads dev.<tenant>.<user>, with a tenant of A-Z a-z 0-9 _ -",
    };
  }
  return { ok: true, principal: { tenant, user: name } };
}
