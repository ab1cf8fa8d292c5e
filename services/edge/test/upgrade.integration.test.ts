import { CLOSE_CODES } from "@throughline/protocol";
import { eventually, pageAt, startChromium } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import type { Authenticated } from "../src/auth/token.ts";
import { Slots } from "../src/lifecycle/admission.ts";
import type { ConnectionPort, Socket } from "../src/session/port.ts";
import { closeListener, type Listener, listen } from "../src/transport/listen.ts";
import { loadUws } from "../src/transport/uws.ts";
import { serveWebSocket } from "../src/transport/websocket.ts";
import { frameBytes, handshakeHead, OPCODE, RawSocket } from "./raw-socket.ts";

const ADMITTED: Authenticated = { ok: true, principal: { tenant: "acme", user: "ann" } };

/** The door alone: whoever is let in is handed to `open`, and a token is checked as slowly as the test likes. */
class Door {
  readonly uws = loadUws();
  readonly connections = new Slots(10_000, 0);
  readonly handshakes = new Slots(10_000, 0);
  readonly errors: object[] = [];
  readonly heard: string[] = [];
  closed = 0;
  check: () => Promise<Authenticated> | Authenticated = () => ADMITTED;
  open: (socket: Socket) => void = () => undefined;
  #listener: Listener | undefined;

  async listen(): Promise<number> {
    const app = this.uws.module.App();
    const note = (fields: object): void => void this.errors.push(fields);
    serveWebSocket(app, "/v1/connect", {
      maxBackpressure: 1024 * 1024,
      idleTimeout: 60,
      connections: this.connections,
      handshakes: this.handshakes,
      log: { info: () => undefined, warn: () => undefined, error: note },
      isAccepting: () => true,
      authenticate: () => this.check(),
      turnedAway: () => undefined,
      open: (socket) => {
        this.open(socket);
        return this.#port();
      },
    });
    const options = { host: "127.0.0.1", port: 0, shared: false, setting: "the test" };
    this.#listener = await listen(this.uws, app, options);
    return this.#listener.port;
  }

  close(): void {
    if (this.#listener) closeListener(this.uws, this.#listener);
  }

  #port(): ConnectionPort {
    return {
      received: (text) => void this.heard.push(text),
      refused: () => undefined,
      pinged: () => undefined,
      drained: () => undefined,
      heard: () => undefined,
      closed: () => void (this.closed += 1),
    };
  }
}

let door: Door;
let port: number;
beforeAll(async () => {
  door = new Door();
  port = await door.listen();
});
afterAll(() => {
  door.close();
  expect(door.errors).toEqual([]);
});

const idle = (): boolean => door.connections.taken === 0 && door.handshakes.taken === 0;

describe("a token that takes time", () => {
  test.each([
    ["good", ADMITTED],
    ["bad", { ok: false, code: "unauthenticated", message: "no" }],
    ["good, and checked by something that fails", undefined],
  ] as const)(
    "[CON9] [C10] a thousand clients go while their %s token is checked",
    async (_what, verdict) => {
      const waiting: (() => void)[] = [];
      door.check = () =>
        new Promise((resolve, reject) => {
          waiting.push(() => (verdict ? resolve(verdict) : reject(new Error("the keys are away"))));
        });
      let opened = 0;
      door.open = () => (opened += 1);
      for (let batch = 0; batch < 10; batch += 1) {
        const sockets = await Promise.all(Array.from({ length: 100 }, () => RawSocket.open(port)));
        for (const raw of sockets) raw.write(handshakeHead());
        await eventually(() => waiting.length === 100);
        expect(door.handshakes.taken).toBe(100);
        // Half of them are reset, half end in order; one in ten stays.
        sockets.forEach((raw, i) => {
          if (i % 10 === 9) return;
          if (i % 2 === 0) raw.socket.resetAndDestroy();
          else raw.end();
        });
        const stays = sockets.filter((_, i) => i % 10 === 9);
        // Half of the verdicts come before uWebSockets hears of the ends, half after.
        const decide = waiting.splice(0);
        for (const go of decide.slice(0, 50)) go();
        await new Promise((resolve) => setTimeout(resolve, 5));
        for (const go of decide.slice(50)) go();
        const status = verdict === undefined ? 503 : 101;
        for (const raw of stays) await raw.until(() => raw.status === status, `a ${status}`);
        for (const raw of sockets) raw.destroy();
        await eventually(idle);
      }
      // Those who stayed were let in; of those who went, only the ones whose verdict was quicker.
      if (verdict?.ok === true) expect(opened).toBeGreaterThanOrEqual(100);
      else expect(opened).toBe(0);
      expect(door.closed).toBe(opened);
      door.closed = 0;
      door.errors.length = 0;
      door.check = () => ADMITTED;
    },
  );

  test("[CON9] a client that does not wait for the answer gets one all the same, and leaves nothing behind", async () => {
    let admit: (verdict: Authenticated) => void = () => undefined;
    door.check = () => new Promise((resolve) => (admit = resolve));
    const raw = await RawSocket.open(port);
    raw.write(handshakeHead());
    await eventually(() => door.handshakes.taken === 1);
    raw.write(frameBytes({ opcode: OPCODE.text, payload: "early" }));
    await new Promise((resolve) => setTimeout(resolve, 20));
    admit(ADMITTED);
    await raw.until(() => raw.status === 101 || raw.ended, "an answer");
    raw.destroy();
    await eventually(idle);
    door.check = () => ADMITTED;
  });
});

describe("the codes that an edge closes with", () => {
  const LONG = `${"é".repeat(70)} and so on`;
  const CUT = `${"é".repeat(60)}…`;

  /** In the order of the table, and once more with a reason that is too long. */
  function closeInTurn(): { code: number; reason: string }[] {
    const plan = [
      ...CLOSE_CODES.map(({ code, name }) => ({ code, reason: name })),
      { code: 4400, reason: LONG },
    ];
    const wanted = plan.map(({ code, reason }) => ({
      code,
      reason: reason === LONG ? CUT : reason,
    }));
    door.open = (socket) => {
      const next = plan.shift();
      // Not inside `open`, where the port is not known yet.
      setImmediate(() => socket.end(next?.code ?? 1011, next?.reason ?? ""));
    };
    return wanted;
  }

  test("[WS4] reach the ws package, with their reasons", async () => {
    const wanted = closeInTurn();
    for (const expected of wanted) {
      const ws = new WebSocket(`ws://127.0.0.1:${port}/v1/connect`, ["throughline.v1"]);
      const closed = await new Promise((resolve, reject) => {
        ws.on("error", reject);
        ws.on("close", (code, reason) => resolve({ code, reason: reason.toString("utf8") }));
      });
      expect(closed).toEqual(expected);
    }
    await eventually(idle);
  });

  test("[WS4] reach a browser's page, with their reasons", async () => {
    const wanted = closeInTurn();
    const browser = await startChromium();
    const page = await pageAt(browser, `http://127.0.0.1:${port}`);
    const found: unknown = await page.evaluate(`(async () => {
      const found = [];
      for (let i = 0; i < ${wanted.length}; i += 1) {
        const ws = new WebSocket("ws://127.0.0.1:${port}/v1/connect", ["throughline.v1"]);
        found.push(await new Promise((resolve) => {
          ws.onclose = ({ code, reason, wasClean }) => resolve({ code, reason, wasClean });
        }));
      }
      return found;
    })()`);
    await browser.close();
    expect(found).toEqual(wanted.map((each) => ({ ...each, wasClean: true })));
  });
});
