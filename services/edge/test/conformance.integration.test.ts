import { type Edge, eventually, type NatsServer, startEdge, startNats } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FRAME_CASES, type FrameCase } from "./frame-cases.ts";
import { HANDSHAKE_CASES, type HandshakeCase } from "./handshake-cases.ts";
import { closePayload, frameBytes, OPCODE, RawSocket, type ServerFrame } from "./raw-socket.ts";
import { type UwsBuild, uwsBuilds } from "./uws-builds.ts";

let nats: NatsServer;
beforeAll(async () => {
  nats = await startNats();
});
afterAll(() => nats.dispose());

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1));

/** See FrameCase.answers. */
function word({ opcode, payload, fin, rsv }: ServerFrame): string {
  if (!fin || rsv !== 0) return `a frame that the server must not send (${opcode})`;
  if (opcode === OPCODE.pong) return `pong ${payload.toString("latin1")}`;
  if (opcode === OPCODE.close) {
    if (payload.length === 0) return "close";
    const code = payload.readUInt16BE();
    const reason = payload.subarray(2).toString("utf8");
    // Ours are for people to read; a client's own is sent back to it.
    return code === 1000 && reason !== "" ? `close 1000 ${reason}` : `close ${code}`;
  }
  const { type, code }: { type: string; code?: string } = JSON.parse(payload.toString("utf8"));
  return code === undefined ? type : `${type} ${code}`;
}

async function answersTo(edge: Edge, { writes, answers }: FrameCase): Promise<string[]> {
  const raw = await RawSocket.upgraded(edge.port);
  for (const bytes of writes) {
    raw.write(bytes);
    await turn();
  }
  if (answers.at(-1) !== "end") {
    // Answered in its turn: what has not come by then does not come.
    raw.write(frameBytes({ opcode: OPCODE.ping, payload: "still there" }));
    await raw.until(
      () => raw.ended || raw.frames().map(word).includes("pong still there"),
      "a pong",
    );
  } else {
    await raw.until(() => raw.ended, "an end");
  }
  const words = raw.frames().slice(1).map(word);
  const last = raw.ended ? ["end"] : [];
  raw.destroy();
  return [...words, ...last].filter((each) => each !== "pong still there");
}

/** See HandshakeCase.outcome. `mute` can only be told when the time is up. */
async function outcomeOf(edge: Edge, { writes }: HandshakeCase): Promise<string> {
  const raw = await RawSocket.open(edge.port);
  for (const bytes of writes) {
    raw.write(Buffer.from(bytes, "latin1"));
    await turn();
  }
  const begun = performance.now();
  const isKnown = (): boolean =>
    raw.ended || (raw.status === 101 ? raw.frames().length > 0 : raw.isAnswered);
  // 10 s on the older build, 30 on the current one; in the steps of its timers.
  await eventually(isKnown, { timeoutMs: 40_000 });
  const waited = performance.now() - begun;
  expect(raw.text).not.toContain("dev.acme");
  const { status } = raw;
  raw.destroy();
  if (status === undefined) return waited > 5_000 ? "mute" : "cut";
  if (status === 101) {
    const [first] = raw.frames();
    const closed = first?.opcode === OPCODE.close ? ` ${first.payload.readUInt16BE()}` : "";
    expect(raw.frames().map(word)[0]).toBe(closed === "" ? "welcome" : `close${closed}`);
    const protocol = raw.headers.get("sec-websocket-protocol");
    return closed === "" && protocol !== undefined ? `101 ${protocol}` : `101${closed}`;
  }
  if (raw.headers.get("content-type") !== "application/problem+json") return `${status}`;
  const problem: { code: string } = JSON.parse(raw.body);
  if (status === 426) expect(raw.headers.get("sec-websocket-version")).toBe("13");
  return `${status} ${problem.code}`;
}

// Side by side: some of it is waiting until a time of the server is up.
describe.concurrent.each([...uwsBuilds()])(
  "the $name build of uWebSockets",
  ({ name, node }: UwsBuild) => {
    let edge: Edge;
    beforeAll(async () => {
      edge = await startEdge({ natsUrl: nats.url, ...(node === undefined ? {} : { node }) });
      expect(edge.logs()).toContain(`(${name} build)`);
    });
    afterAll(async () => {
      expect(edge.running).toBe(true);
      await edge.dispose();
    });

    test.each(Object.entries(FRAME_CASES))("[WS1] [WS2] frames: %s", async (_group, cases) => {
      const found = await Promise.all(
        cases.map(async (each) => [each.name, await answersTo(edge, each)]),
      );
      expect(found).toEqual(cases.map((each) => [each.name, each.answers]));
    });

    test.each(Object.entries(HANDSHAKE_CASES))(
      "[HS1] [HS2] [HS3] [HS4] [CON2] [AUTH3] heads: %s",
      async (_group, cases) => {
        const found = await Promise.all(
          cases.map(async (each) => [each.name, await outcomeOf(edge, each)]),
        );
        const wanted = ({ outcome }: HandshakeCase): string =>
          typeof outcome === "string" ? outcome : outcome[name];
        expect(found).toEqual(cases.map((each) => [each.name, wanted(each)]));
        expect(edge.logs()).not.toContain("dev.acme");
      },
      60_000,
    );

    test("[HS4] behind a request whose end is uncertain nothing is read", async () => {
      const next = "GET /v1/agents HTTP/1.1\r\nHost: localhost\r\n\r\n";
      for (const target of [
        "GET /v1/agents",
        "POST /v1/sessions",
        "GET /nowhere",
        "PUT /v1/agents",
      ]) {
        const raw = await RawSocket.open(edge.port);
        raw.write(`${target} HTTP/1.1\r\nHost: localhost\r\n`);
        raw.write(`Content-Length: 0\r\nContent-Length: ${next.length}\r\n\r\n${next}`);
        await raw.until(() => raw.ended, "an end");
        // uWebSockets cuts off who sends more before the answer is there.
        expect(raw.text.replace(/^HTTP\/1\.1 400 /, "")).not.toContain("HTTP/1.1");
        expect([400, undefined]).toContain(raw.status);
      }
    });

    test("[WS3] a client that ends its side is answered what it asked before, and the socket ends", async () => {
      const raw = await RawSocket.upgraded(edge.port);
      raw.write(frameBytes({ opcode: OPCODE.ping, payload: "before" }));
      raw.end();
      await raw.until(() => raw.ended, "an end");
      expect(raw.frames().slice(1).map(word)).toEqual(["pong before"]);
    });

    test("[WS3] a close that the client does not answer: the socket goes all the same", async () => {
      const raw = await RawSocket.upgraded(edge.port);
      for (let i = 0; i < 9; i += 1) raw.write(frameBytes({ opcode: OPCODE.text, payload: "{" }));
      await raw.until(() => raw.ended, "the server's end");
      expect(raw.frames().map(word).at(-1)).toBe("close 4400");
      // Our side stays open and says nothing; the server resets it when its time is up.
      await eventually(
        () => {
          raw.write(closePayload(1000));
          return raw.socket.destroyed;
        },
        { timeoutMs: 30_000, everyMs: 500 },
      );
    }, 40_000);
  },
);
