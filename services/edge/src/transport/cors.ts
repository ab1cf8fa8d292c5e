/**
 * What a browser is told of whose pages may use this node (Fetch standard, "CORS protocol"). Cookies and the
 * like are never taken: a page shows its token or ticket itself, so no answer allows credentials.
 */
import { ORIGIN_REFUSED } from "../auth/origins.ts";
import { empty, problem, type Reply } from "./problem.ts";

/** What clients send besides what a browser lets every page send. `Last-Event-ID` where a page streams by fetch. */
const ALLOWED_HEADERS = [
  "Authorization",
  "Content-Type",
  "Idempotency-Key",
  "If-None-Match",
  "Last-Event-ID",
  "Range",
].join(", ");

/** What a page may read of an answer besides what every page may. */
const EXPOSED_HEADERS = [
  "Accept-Ranges",
  "Allow",
  "Content-Disposition",
  "Content-Range",
  "ETag",
  "Retry-After",
  "WWW-Authenticate",
].join(", ");

/** Browsers ask again after this, or sooner: Chromium after two hours at the latest. */
const MAX_AGE_S = 600;

type Headers = ReadonlyMap<string, string>;

/** Whether pages of the request's origin may use this node. A request without one may. */
export type AllowsOrigin = (head: { readonly headers: Headers }) => boolean;

/** Of every answer, whatever its status: a page that is not allowed to read a refusal is shown a lost link. */
export function corsHeaders(headers: Headers, allows: AllowsOrigin): Record<string, string> {
  const origin = headers.get("origin");
  // Also where there is none: a cache must not give one page's answer to another.
  const always = { Vary: "Origin" };
  if (origin === undefined || !allows({ headers })) return always;
  return {
    ...always,
    "Access-Control-Allow-Origin": origin,
    "Access-Control-Expose-Headers": EXPOSED_HEADERS,
  };
}

/** The answer to OPTIONS. `methods`: what the path takes. */
export function optionsReply(headers: Headers, methods: string, allows: AllowsOrigin): Reply {
  const isPreflight = headers.has("origin") && headers.has("access-control-request-method");
  if (!isPreflight) return empty(204, { Allow: methods });
  if (!allows({ headers })) {
    return problem("forbidden", ORIGIN_REFUSED);
  }
  return empty(204, {
    "Access-Control-Allow-Methods": methods,
    "Access-Control-Allow-Headers": ALLOWED_HEADERS,
    "Access-Control-Max-Age": String(MAX_AGE_S),
  });
}
