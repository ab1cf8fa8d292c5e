import { eventually, openHiddenTab, startChromium } from "@throughline/testkit";
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { OPCODE, RawSocket } from "./raw-socket.ts";
import { note, Stage } from "./stage.ts";

/** Ours are 60 and 55: a ping after four seconds instead of 44, and an end four seconds later. */
const IDLE_TIMEOUT_S = 8;
const SILENT_MS = 6_500;
/** Long enough to be closed twice over. */
const WATCHED_MS = 20_000;

let stage: Stage;
let edge: Edge;
beforeAll(async () => {
  stage = await Stage.open();
  const connection = { silentMs: SILENT_MS, quietMs: 600_000 };
  edge = await stage.edge({ limits: { connection, idleTimeoutS: IDLE_TIMEOUT_S } });
});
afterAll(() => stage.close());

const watched = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, WATCHED_MS));

describe.concurrent("clients that say nothing", () => {
  test("[CON6] one that answers pings alone stays, and is sent what comes", async () => {
    const session = await stage.session(edge);
    const { ref, writer } = await stage.run(session);
    const client = await stage.connected(edge);
    await client.subscribe({ session, run: ref.run });
    await client.frame("caught_up");
    let pings = 0;
    client.ws.on("ping", () => (pings += 1));
    await watched();
    expect(client.closed).toBeUndefined();
    expect(pings).toBeGreaterThanOrEqual(3);
    await writer.append(note("after"));
    expect((await client.frame("custom")).payload).toEqual({ name: "note", value: "after" });
    client.terminate();
  }, 60_000);

  test("[CON6] one that does not even answer pings is closed with 4408", async () => {
    const raw = await RawSocket.upgraded(edge.port);
    await eventually(() => raw.ended, { timeoutMs: 15_000 });
    const [ping, close] = raw.frames().slice(1);
    expect(ping?.opcode).toBe(OPCODE.ping);
    expect(close?.opcode).toBe(OPCODE.close);
    expect(close?.payload.readUInt16BE()).toBe(4408);
    raw.destroy();
  }, 60_000);

  test("[CON6] a hidden tab whose timers are held back stays, and its page is sent what comes", async () => {
    const session = await stage.session(edge, "dev.acme.tab");
    const { ref, writer } = await stage.run(session);
    const site = await Site.open({ port: edge.port, session, run: ref.run });
    const browser = await startChromium();
    await openHiddenTab(browser, `${site.origin}/`);
    await eventually(() => site.seen("1"), { timeoutMs: 20_000 });
    await watched();
    await writer.append(note("while hidden"));
    await eventually(() => site.seen("2"));
    // The same connection: the client has been up once. Its timers were held back: they run once a minute, after
    // some seconds at once a second.
    expect(site.reports).toEqual([
      expect.stringMatching(/^1 hidden ticks \d+ open 1$/),
      expect.stringMatching(/^2 hidden ticks \d+ open 1$/),
    ]);
    const [before = 0, after = 0] = site.reports.map((line) => Number(line.split(" ")[3]));
    expect(after - before).toBeLessThan(WATCHED_MS / 1_000 - 5);
    await browser.close();
    site.close();
  }, 90_000);
});

/** A page that follows a run with the client as it is built for browsers, and tells each event that it sees. */
class Site {
  readonly reports: string[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async open(run: { port: number; session: string; run: string }): Promise<Site> {
    const page = PAGE.replace("RUN", JSON.stringify(run));
    const server = createServer((request, response) => {
      const path = decodeURIComponent(request.url ?? "");
      const file = MODULE.test(path) ? new URL(`../../..${path}`, import.meta.url) : undefined;
      if (path.startsWith("/saw ")) site.reports.push(path.slice(5));
      if (file !== undefined && existsSync(file)) {
        response.setHeader("content-type", "text/javascript");
        response.end(readFileSync(file));
      } else {
        response.setHeader("content-type", "text/html");
        response.end(path === "/" ? page : "");
      }
    });
    const site = new Site(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return site;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  seen(seq: string): boolean {
    return this.reports.some((line) => line.startsWith(`${seq} `));
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

const MODULE = /^\/libs\/(client|protocol)\/dist\/[A-Za-z0-9/_-]+\.js$/;
const PAGE = `<!doctype html>
<script type="importmap">
  { "imports": { "@throughline/protocol": "/libs/protocol/dist/index.js" } }
</script>
<script type="module">
  import { createClient } from "/libs/client/dist/index.js";
  const { port, session, run } = RUN;
  let ticks = 0;
  setInterval(() => (ticks += 1), 1_000);
  let opened = 0;
  class Counted extends WebSocket {
    constructor(...args) {
      super(...args);
      this.addEventListener("open", () => (opened += 1));
    }
  }
  const hidden = () => new Promise((resolve) => {
    const look = () => document.visibilityState === "hidden" && resolve();
    document.addEventListener("visibilitychange", look);
    look();
  });
  const client = createClient({ url: "ws://127.0.0.1:" + port, token: "dev.acme.tab", webSocket: Counted });
  for await (const { seq } of client.follow({ session, run })) {
    await hidden();
    await fetch("/saw " + [seq, document.visibilityState, "ticks", ticks, "open", opened].join(" "));
  }
</script>`;
