import type { RequestOrigin } from "../auth/local.ts";
import type { UwsRequest, UwsResponse } from "./uws.ts";

/** What is read of a request while it is there: the native one dies at the first `await`. */
export interface RequestHead extends RequestOrigin {
  readonly query: URLSearchParams;
}

export function readHead(res: UwsResponse, req: UwsRequest): RequestHead {
  const headers = new Map<string, string>();
  req.forEach((name, value) => {
    // Joined as RFC 9110 says. A doubled Host or Origin so becomes one that is not local.
    const before = headers.get(name);
    headers.set(name, before === undefined ? value : `${before}, ${value}`);
  });
  return {
    headers,
    query: new URLSearchParams(req.getQuery() ?? ""),
    remoteAddress: Buffer.from(res.getRemoteAddressAsText()).toString("latin1"),
  };
}

/** The token of `Authorization: Bearer`, if there is one. */
export function bearerOf(headers: ReadonlyMap<string, string>): string | undefined {
  return /^bearer +([^ ,]+)$/i.exec(headers.get("authorization") ?? "")?.[1];
}
