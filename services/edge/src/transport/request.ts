import type { RequestOrigin } from "../auth/local.ts";
import type { UwsRequest, UwsResponse } from "./uws.ts";

/** What is read of a request while it is there: the native one dies at the first `await`. */
export interface RequestHead extends RequestOrigin {
  readonly query: URLSearchParams;
}

export function readHead(res: UwsResponse, req: UwsRequest): RequestHead {
  return {
    headers: headersOf(req),
    query: new URLSearchParams(req.getQuery() ?? ""),
    remoteAddress: Buffer.from(res.getRemoteAddressAsText()).toString("latin1"),
  };
}

/** By lower-case name. One that comes twice is joined as RFC 9110 says: a doubled Host or Origin so becomes one that is not local. */
export function headersOf(req: UwsRequest): Map<string, string> {
  const headers = new Map<string, string>();
  req.forEach((name, value) => {
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  });
  return headers;
}

/** The token of `Authorization: Bearer`, if there is one. */
export function bearerOf(headers: ReadonlyMap<string, string>): string | undefined {
  return /^bearer +([^ ,]+)$/i.exec(headers.get("authorization") ?? "")?.[1];
}

/**
 * Why the end of a request's body could be read in two ways (RFC 9112, 6.3); undefined where it cannot.
 * uWebSockets goes by the first Content-Length and passes over codings: a proxy in front that goes by the
 * last would take the rest of one user's body for another's request.
 */
export function framingFault(headers: ReadonlyMap<string, string>): string | undefined {
  const length = headers.get("content-length");
  const coding = headers.get("transfer-encoding");
  if (length !== undefined && !/^\d{1,15}$/.test(length)) {
    return "the header Content-Length must be one whole number";
  }
  if (coding !== undefined && coding.toLowerCase() !== "chunked") {
    return "the header Transfer-Encoding must be chunked, or absent";
  }
  if (length !== undefined && coding !== undefined) {
    return "a request has a Content-Length or a Transfer-Encoding, not both";
  }
  return undefined;
}
