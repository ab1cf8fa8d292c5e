/** The load balancers as deploy/lb configures them, in front of edges of a test. */
import { type Edge, type LoadBalancer, startHaproxy, startNginx } from "@throughline/testkit";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export type BalancerKind = "nginx" | "haproxy";

/** What edges need behind them. */
export const BEHIND = { TL_TRUSTED_PROXIES: "127.0.0.1" } as const;

const FILES = { nginx: "nginx.conf", haproxy: "haproxy.cfg" } as const;

export function startBalancer(kind: BalancerKind, edges: readonly Edge[]): Promise<LoadBalancer> {
  const start = kind === "nginx" ? startNginx : startHaproxy;
  return start((port) => configured(kind, edges, port));
}

/** The file of deploy/lb with the edges' and its own address in place, and nothing else changed. */
function configured(kind: BalancerKind, edges: readonly Edge[], port: number): string {
  const path = fileURLToPath(new URL(`../deploy/lb/${FILES[kind]}`, import.meta.url));
  const listens = kind === "nginx" ? "listen 80;" : "bind :80\n";
  const [first] = edges;
  if (first === undefined) throw new Error("a load balancer needs an edge");
  const second = edges[1] ?? first;
  const address = ({ port: own, adminUrl }: Edge): string =>
    `127.0.0.1:${own}${kind === "haproxy" ? ` port ${new URL(adminUrl).port}` : ""}`;
  const changes = [
    ["edge-1:8080", address(first)],
    ["edge-2:8080", address(second)],
    [listens, listens.replace(":80", `127.0.0.1:${port}`).replace(" 80", ` 127.0.0.1:${port}`)],
  ] as const;
  let text = readFileSync(path, "utf8");
  for (const [from, to] of changes) {
    if (text.split(from).length !== 2) throw new Error(`${path} does not have "${from}" once`);
    text = text.replace(from, to);
  }
  return text;
}
