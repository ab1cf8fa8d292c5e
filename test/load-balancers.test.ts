/** Edges behind nginx and HAProxy, configured as deploy/lb does it. */
import { createClient } from "@throughline/client/node";
import {
  type Edge,
  eventually,
  type Fleet,
  freePort,
  type LoadBalancer,
  startFleet,
  tcpProxy,
  type ViewerReport,
} from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BEHIND, type BalancerKind, startBalancer } from "./balancers.ts";
import { comeback, spread, totals } from "./figures.ts";
import { keepPosting, type PostReport } from "./posts.ts";
import { RawClient } from "./raw-client.ts";
import { startWrittenRuns, TOKEN, type WrittenRuns } from "./written-runs.ts";
import { startWorld, type World } from "./world.ts";

const KINDS = ["nginx", "haproxy"] as const satisfies readonly BalancerKind[];
const TRANSPORTS = ["socket", "stream"] as const;
/** Through each load balancer, over each transport. */
const VIEWERS = 40;
const DRAIN = { TL_DRAIN_DELAY_MS: "1500", TL_DRAIN_MS: "2000" } as const;
const IDLE_MS = 75_000;

let world: World;
let edges: [Edge, Edge];
let balancers: Record<BalancerKind, LoadBalancer>;
/** Nothing happens there while the others are restarted and killed. */
let idle: Idle;
const ends: (() => unknown)[] = [];

beforeAll(async () => {
  world = await startWorld(BEHIND);
  idle = await startIdle();
  edges = await Promise.all([world.edge({ env: DRAIN }), world.edge({ env: DRAIN })]);
  balancers = await behindBoth(edges);
}, 60_000);
afterAll(async () => {
  for (const end of ends.reverse()) await end();
  await world.dispose();
});

async function behindBoth(all: readonly Edge[]): Promise<Record<BalancerKind, LoadBalancer>> {
  const [nginx, haproxy] = await Promise.all(KINDS.map((kind) => startBalancer(kind, all)));
  if (nginx === undefined || haproxy === undefined) throw new Error("two were started");
  ends.push(nginx.dispose, haproxy.dispose);
  return { nginx, haproxy };
}

describe("behind nginx and HAProxy", () => {
  test("[LB1] [LB2] [LIFE3] [INV2] [INV5] all edges are restarted in turn under load: no event is lost or doubled, no POST fails", async () => {
    const load = await startLoad();
    for (const edge of edges) {
      await edge.restart();
      // As whoever rolls them out would: the next one when the load balancers use this one again.
      for (const kind of KINDS) await eventually(() => leadsTo(balancers[kind], edge));
    }
    const { reports } = await load.stop("rolling restart");
    // Everybody was on one of the edges, and was told before it went.
    const returns = reports.flatMap((report) => report.returns);
    expect(reports.filter((report) => report.returns.length === 0)).toEqual([]);
    expect(returns.filter(({ told }) => told === undefined)).toEqual([]);
  }, 120_000);

  test("[LB6] [LB2] [INV10] one edge is killed, then the other: clients go on at the one that is left, and no POST fails", async () => {
    const load = await startLoad();
    for (const edge of edges) {
      await edge.kill();
      await eventually(() => load.posted() > 40);
      await edge.restart();
      for (const kind of KINDS) await eventually(() => leadsTo(balancers[kind], edge));
    }
    const { reports } = await load.stop("kill -9");
    expect(reports.filter((report) => report.returns.length === 0)).toEqual([]);
  }, 120_000);

  test.each(KINDS)(
    "[LB2] [INV5] the edge goes after it took a POST and before its answer: %s asks again, and it takes effect once",
    async (kind) => {
      const proxy = await tcpProxy({ port: edges[0].port });
      ends.push(proxy.close);
      const behind = { ...edges[0], port: proxy.port, adminUrl: edges[0].adminUrl };
      const balancer = await startBalancer(kind, [behind, behind]);
      ends.push(balancer.dispose);
      await eventually(async () => (await fetch(`${balancer.url}/v1/agents`)).status === 401);
      let cuts = 0;
      proxy.tap(() => ({
        down: (chunk) => {
          if (!chunk.includes("202 Accepted") || cuts > 0) return chunk;
          cuts += 1;
          proxy.cut();
          return undefined;
        },
      }));
      proxy.cut(); // what nginx keeps open is not tapped
      const session = await sessionOf(edges[0]);
      const posts = keepPosting(balancer.url, session, 20);
      await eventually(() => posts.sent() >= 10);
      const { sent, failures, runs, duplicates } = await posts.stop();
      expect(failures).toEqual([]);
      expect(cuts).toBe(1);
      // More may have been under way when the connections were cut.
      expect(duplicates).toBeGreaterThan(0);
      const list = await world.broker.runs.list({ tenant: "acme", session }, Infinity);
      expect(new Set(list.map(({ run }) => run))).toEqual(runs);
      expect(list.length).toBe(sent);
    },
  );

  test.each(KINDS)("[LB7] no edge answers: %s says so, and when to come back", async (kind) => {
    const nobody = `http://127.0.0.1:${await freePort()}`;
    const gone = { ...edges[0], port: Number(new URL(nobody).port), adminUrl: nobody };
    const balancer = await startBalancer(kind, [gone, gone]);
    ends.push(balancer.dispose);
    const answer = await eventually(async () => {
      const response = await fetch(`${balancer.url}/v1/sessions`);
      return response.status === 503 && response;
    });
    expect(answer.headers.get("retry-after")).toBe("1");
    expect(answer.headers.get("content-type")).toBe("application/problem+json");
    expect(await answer.json()).toMatchObject({ code: "unavailable", retry_after_ms: 1_000 });
  });

  test("[LB3] [C23] 75 s of silence end no stream, over either transport", async () => {
    await eventually(() => performance.now() - idle.since > IDLE_MS, {
      timeoutMs: IDLE_MS + 1_000,
      everyMs: 200,
    });
    const writing = idle.runs.write(50);
    await eventually(() => idle.runs.seq() > 3);
    const seq = await writing.stop();
    expect(await idle.fleet.reached(seq, 10_000)).toBe(0);
    for (const client of idle.silent) await client.frame((frame) => frame.seq === seq);
    const reports = await idle.fleet.reports();
    expect(reports.map(({ returns }) => returns)).toEqual(reports.map(() => []));
    expect(totals(reports)).toEqual({ holes: 0, repeats: 0 });
    const quietest = reports.map(({ quietestMs }) => quietestMs);
    console.log(
      `idle for ${IDLE_MS / 1_000} s: the longest time without a byte ${spread(quietest)}`,
    );
  }, 120_000);
});

interface Idle {
  readonly since: number;
  readonly runs: WrittenRuns;
  readonly fleet: Fleet;
  /** They say nothing at all, but for the pongs of their library. */
  readonly silent: readonly RawClient[];
}

async function startIdle(): Promise<Idle> {
  const edge = await world.edge();
  const both = await behindBoth([edge]);
  const runs = await startWrittenRuns(world, edge, 1);
  const fleet = startFleet(1);
  ends.push(() => fleet.dispose());
  const silent: RawClient[] = [];
  for (const { session, run } of runs.refs) {
    for (const { url } of Object.values(both)) {
      const client = await RawClient.connect(connectUrl(url));
      await client.subscribe(session, run);
      silent.push(client);
      for (const transport of TRANSPORTS)
        await fleet.watch({ transport, count: 1, urls: [url], token: TOKEN, session, run });
    }
  }
  return { since: performance.now(), runs, fleet, silent };
}

interface Load {
  /** POSTs sent so far since this was last asked. */
  posted(): number;
  /** Resolves when all viewers have seen all events; checks that nothing was lost, doubled or refused. */
  stop(what: string): Promise<{ reports: readonly ViewerReport[] }>;
}

/** Viewers and a stream of POSTs through each of the load balancers. */
async function startLoad(): Promise<Load> {
  const runs = await startWrittenRuns(world, edges[0], 4);
  const fleet = startFleet(2);
  ends.push(() => fleet.dispose());
  for (const kind of KINDS)
    for (const transport of TRANSPORTS)
      for (const { session, run } of runs.refs) {
        const count = VIEWERS / runs.refs.length;
        const urls = [balancers[kind].url];
        await fleet.watch({ transport, count, urls, token: TOKEN, session, run });
      }
  const writing = runs.write(100);
  const posting = await Promise.all(
    KINDS.map(async (kind) => {
      const session = await sessionOf(edges[0]);
      return { kind, session, posts: keepPosting(balancers[kind].url, session, 25) };
    }),
  );
  let before = 0;
  return {
    posted: () => {
      const now = posting.reduce((sum, { posts }) => sum + posts.sent(), 0);
      const since = now - before;
      if (since > 40) before = now;
      return since;
    },
    stop: async (what) => {
      const answers: [BalancerKind, string, PostReport][] = [];
      for (const { kind, session, posts } of posting)
        answers.push([kind, session, await posts.stop()]);
      const seq = await writing.stop();
      expect(await fleet.reached(seq, 30_000)).toBe(0);
      const reports = await fleet.reports();
      fleet.dispose();
      const returns = reports.flatMap((report) => report.returns);
      const { away, failed } = comeback(returns);
      console.log(
        `${what} of 2 edges behind nginx and HAProxy: ${reports.length} viewers came back ` +
          `${returns.length} times, away ${spread(away)}, ${failed} failed connects; ${seq} events each`,
      );
      expect(totals(reports)).toEqual({ holes: 0, repeats: 0 });
      for (const [kind, session, report] of answers) await checkPosts(kind, session, report);
      return { reports };
    },
  };
}

async function checkPosts(kind: BalancerKind, session: string, report: PostReport): Promise<void> {
  const { sent, failures, runs, duplicates } = report;
  console.log(`${kind}: ${sent} POSTs, ${failures.length} failed, ${duplicates} sent twice by it`);
  expect(failures).toEqual([]);
  expect(sent).toBeGreaterThan(20);
  // Each took effect once, also where the load balancer sent it twice and the client gave it no name.
  const list = await world.broker.runs.list({ tenant: "acme", session }, Infinity);
  expect(new Set(list.map(({ run }) => run))).toEqual(runs);
  expect(list.length).toBe(sent);
}

async function sessionOf(edge: Edge): Promise<string> {
  const client = createClient({ url: edge.url, token: TOKEN });
  const session = await client.createSession();
  client.close();
  return session;
}

/** Whether a new connection is brought to this edge. */
async function leadsTo(balancer: LoadBalancer, edge: Edge): Promise<boolean> {
  const client = await RawClient.connect(connectUrl(balancer.url));
  const { node } = await client.frame(({ type }) => type === "welcome");
  client.terminate();
  return node === edge.nodeId;
}

const connectUrl = (url: string): string => `${url.replace("http", "ws")}/v1/connect`;
