/** What nginx does to streams: it could hold them back, compress them, or keep what a slow client does not read. */
import {
  type Edge,
  eventually,
  EventStreamClient,
  type LoadBalancer,
  startNginx,
} from "@throughline/testkit";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BEHIND, startBalancer } from "./balancers.ts";
import { series } from "./figures.ts";
import { type Frame, RawClient } from "./raw-client.ts";
import { startWrittenRuns, TOKEN } from "./written-runs.ts";
import { startWorld, type World } from "./world.ts";

const TRANSPORTS = ["socket", "stream"] as const;
const MIB = 1024 * 1024;

let world: World;
let edge: Edge;
const balancers: LoadBalancer[] = [];

beforeAll(async () => {
  world = await startWorld(BEHIND);
  edge = await world.edge({ env: { TL_FANOUT_BYTES: `${8 * MIB}` } });
});
afterAll(async () => {
  for (const balancer of balancers) await balancer.dispose();
  await world.dispose();
});

interface Reader {
  /** How the body is compressed. */
  readonly encoding: string | undefined;
  readonly frames: readonly Frame[];
  pause(): void;
  resume(): void;
  close(): void;
}

async function open(
  transport: "socket" | "stream",
  url: string,
  { session, run }: { session: string; run: string },
): Promise<Reader> {
  if (transport === "stream") {
    const path = `/v1/sessions/${session}/runs/${run}/events`;
    const headers = { authorization: `Bearer ${TOKEN}`, "accept-encoding": "gzip" };
    const client = await EventStreamClient.open(`${url}${path}`, headers);
    const frames: Frame[] = [];
    client.listen(({ data }) => {
      if (data !== undefined) frames.push(JSON.parse(data));
    });
    return {
      encoding: client.response.headers["content-encoding"],
      frames,
      pause: () => client.pause(),
      resume: () => client.resume(),
      close: () => client.close(),
    };
  }
  const client = await RawClient.connect(`${url.replace("http", "ws")}/v1/connect`);
  await client.subscribe(session, run);
  return {
    encoding: undefined,
    frames: client.frames,
    pause: () => client.pause(),
    resume: () => client.resume(),
    close: () => client.terminate(),
  };
}

function frame(
  { frames }: Reader,
  matches: (frame: Frame) => boolean,
  timeoutMs = 15_000,
): Promise<Frame> {
  return eventually(() => frames.find(matches), {
    timeoutMs,
    what: () => `a frame; last were ${JSON.stringify(frames.slice(-3)).slice(0, 600)}`,
  });
}

/** All that an operator may have switched on for other sites: everything is compressed, and buffered by the MiB. */
const NAIVE = (port: number): string => `
  gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any; gzip_comp_level 9;
  proxy_buffering on; proxy_buffer_size 64k; proxy_buffers 32 64k; proxy_busy_buffers_size 1m;
  postpone_output 64k; tcp_nopush on; sendfile on;
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://127.0.0.1:${edge.port};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
    }
  }`;

describe("through nginx", () => {
  test.each(TRANSPORTS)(
    "[LB4] [C23] a %s through one that compresses and buffers all it can: each event is there before the next is written",
    async (transport) => {
      const nginx = await startNginx(NAIVE);
      balancers.push(nginx);
      const runs = await startWrittenRuns(world, edge, 1);
      const [ref] = runs.refs;
      if (ref === undefined) throw new Error("there is a run");
      const reader = await open(transport, nginx.url, ref);
      await frame(reader, ({ type }) => type === "caught_up");
      expect(reader.encoding).toBe(transport === "stream" ? "gzip" : undefined);
      for (let seq = 2; seq <= 40; seq += 1) {
        await runs.append(1);
        await frame(reader, (each) => each.seq === seq, 3_000);
      }
      reader.close();
    },
  );

  test.each(TRANSPORTS)(
    "[LB5] [INV7] a %s through one as we configure it stops reading 64 MB: nothing piles up, another is not delayed, and it gets all when it reads",
    async (transport) => {
      const nginx = await startBalancer("nginx", [edge]);
      balancers.push(nginx);
      const runs = await startWrittenRuns(world, edge, 1);
      const [ref] = runs.refs;
      if (ref === undefined) throw new Error("there is a run");
      const [slow, fast] = [
        await open(transport, nginx.url, ref),
        await open(transport, nginx.url, ref),
      ];
      for (const reader of [slow, fast]) await frame(reader, ({ type }) => type === "caught_up");
      slow.pause();
      const before = { edge: rss(edge.pid), nginx: rssOfGroup(nginx.pid) };
      const pad = "x".repeat(32_000);
      for (let written = 0; written < 2_000; written += 1) await runs.append(pad);
      const last = runs.seq();
      await frame(fast, ({ seq }) => seq === last);
      const grown = {
        edge: rss(edge.pid) - before.edge,
        nginx: rssOfGroup(nginx.pid) - before.nginx,
        disk: bytesIn(nginx.dir),
      };
      console.log(
        `${transport} that does not read 64 MB, through nginx: edge +${mib(grown.edge)} MiB, ` +
          `nginx +${mib(grown.nginx)} MiB, on its disk ${mib(grown.disk)} MiB`,
      );
      expect(grown.nginx).toBeLessThan(16 * MIB);
      expect(grown.disk).toBeLessThan(MIB);
      expect(grown.edge).toBeLessThan(150 * MIB);
      expect(await series(edge, "throughline_edge_fanout_bytes")).toBeLessThan(10 * MIB);
      expect(fast.frames.some(({ type }) => type === "lagging")).toBe(false);
      slow.resume();
      await frame(slow, ({ seq }) => seq === last, 30_000);
      const seqs = slow.frames.flatMap(({ seq }) => (seq === undefined ? [] : [seq]));
      expect(seqs).toEqual(Array.from({ length: last }, (_, i) => i + 1));
      await eventually(() => slow.frames.some(({ type }) => type === "recovered"));
      for (const reader of [slow, fast]) reader.close();
    },
    60_000,
  );
});

function rss(pid: number): number {
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  return Number(match?.[1] ?? NaN) * 1024;
}

/** Of a process and its children. */
function rssOfGroup(pid: number): number {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
  return [pid, ...children.filter(Boolean).map(Number)].reduce((sum, each) => sum + rss(each), 0);
}

function bytesIn(folder: string): number {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).size, 0);
}

const mib = (bytes: number): string => (bytes / MIB).toFixed(1);
