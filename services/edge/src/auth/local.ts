/**
 * Local mode takes dev tokens, which anybody can write. So it must be the developer's own program
 * that sends them: not another machine, not something behind a proxy, and not a web page that the
 * developer's browser shows (which can reach loopback, also by a rebound DNS name).
 */

/** What of a request says where it comes from. */
export interface RequestOrigin {
  /** As text, IPv4 or IPv6. */
  readonly remoteAddress: string;
  readonly headers: ReadonlyMap<string, string>;
}

const LOCAL_NAMES: ReadonlySet<string> = new Set(["localhost", "127.0.0.1", "[::1]"]);
/** Headers by which proxies and CDNs say for whom they ask. */
const PROXY_HEADER =
  /^(forwarded|via|x-forwarded|x-real-ip|x-client|x-cluster-client|x-original|x-envoy|x-proxyuser|true-client|cf-|fly-|fastly-|akamai-)/;

/** Why the request is not local, for the developer to read; undefined when it is. */
export function notLocal(request: RequestOrigin): string | undefined {
  if (!isLoopback(request.remoteAddress)) return "it does not come from this machine";
  for (const name of request.headers.keys()) {
    if (PROXY_HEADER.test(name)) {
      return `it came through a proxy (header ${name})`;
    }
  }
  const host = request.headers.get("host");
  if (host === undefined || !isLocalAuthority(host)) return "its Host is not a local name";
  const origin = request.headers.get("origin");
  if (origin !== undefined && !isLocalOrigin(origin)) return "its Origin is not local";
  return undefined;
}

export function isLoopback(address: string): boolean {
  const text = address.toLowerCase();
  // An IPv4 peer of an IPv6 socket, as uWebSockets writes it (both forms are seen).
  const mapped = /^(?:::ffff:|0000:0000:0000:0000:0000:ffff:)(.+)$/.exec(text)?.[1];
  const v4 = mapped ?? text;
  if (/^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(v4)) return true;
  if (mapped !== undefined && /^7f[0-9a-f]{2}:[0-9a-f]{4}$/.test(mapped)) return true;
  return text === "::1" || text === "0000:0000:0000:0000:0000:0000:0000:0001";
}

function isLocalAuthority(authority: string): boolean {
  const name = authority.replace(/:\d{1,5}$/, "").toLowerCase();
  return LOCAL_NAMES.has(name);
}

export function isLocalOrigin(origin: string): boolean {
  const match = /^https?:\/\/([^/]+)$/.exec(origin);
  return match?.[1] !== undefined && isLocalAuthority(match[1]);
}
