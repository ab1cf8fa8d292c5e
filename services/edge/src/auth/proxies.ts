import { BlockList, isIP } from "node:net";
import type { RequestOrigin } from "./local.ts";

/**
 * Whose word is taken for who the client is. A load balancer appends the address that it sees to
 * `X-Forwarded-For`; anybody can send the header, so only what a known proxy appended counts.
 */
export class TrustedProxies {
  readonly #networks: BlockList = new BlockList();

  /** @param networks addresses, or networks as `10.0.0.0/8`; see {@link isNetwork} */
  constructor(networks: readonly string[]) {
    for (const network of networks) {
      const [address = "", bits] = network.split("/");
      const type = isIP(address) === 6 ? "ipv6" : "ipv4";
      this.#networks.addSubnet(address, Number(bits ?? (type === "ipv6" ? 128 : 32)), type);
    }
  }

  /** The request as its client sent it to the outermost trusted proxy; the same where none is between. */
  seenThrough(request: RequestOrigin): RequestOrigin {
    if (!this.#trusts(request.remoteAddress)) return request;
    const hops = (request.headers.get("x-forwarded-for") ?? "")
      .split(",")
      .map((hop) => hop.trim())
      .filter((hop) => hop !== "");
    if (hops.length === 0) return request;
    // From the nearest on: the first that is no proxy of ours is the client, whatever it claims before that.
    const remoteAddress = hops.findLast((hop) => !this.#trusts(hop)) ?? hops[0] ?? "";
    const headers = new Map(request.headers);
    for (const name of OF_THE_PROXY) headers.delete(name);
    return { ...request, remoteAddress, headers };
  }

  #trusts(address: string): boolean {
    const version = isIP(address);
    return version !== 0 && this.#networks.check(address, version === 6 ? "ipv6" : "ipv4");
  }
}

/** What the proxy says and not the client; all other traces of proxies are the client's. */
const OF_THE_PROXY = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];

/** An IP address, alone or with the length of its network. */
export function isNetwork(text: string): boolean {
  const [address = "", bits, ...more] = text.split("/");
  const version = isIP(address);
  if (version === 0 || more.length > 0) return false;
  return (
    bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 6 ? 128 : 32))
  );
}
