import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { GOOD_COMMANDS } from "./golden-commands.ts";
import {
  BAD_ID_COMMANDS,
  BAD_IDS,
  type BadCommand,
  NO_OBJECTS,
  POISONED_COMMANDS,
  WRONG_PAYLOADS,
} from "./hostile-inputs.ts";
import { NatsEar } from "./nats-ear.ts";
import { RawSocket } from "./raw-socket.ts";
import { type Client, type Frame, Stage } from "./stage.ts";

let stage: Stage;
let edge: Edge;
let ear: NatsEar;

beforeAll(async () => {
  stage = await Stage.open();
  edge = await stage.edge();
  // What the first command asks NATS for is asked once.
  await stage.session(edge);
});
afterAll(() => stage.close());

beforeEach(async () => {
  ear = await NatsEar.on(stage.nats);
});

/**
 * What the edge publishes keeps its order: when the subject of a good command is heard, everything before it has
 * been. So nothing of a test's inputs, no question and no command, has reached NATS.
 */
afterEach(async () => {
  const client = await stage.connected(edge);
  await client.ask({ type: "session.create", payload: {} });
  const heard = await client.until(
    () => (ear.subjects.length > 0 ? ear.subjects : undefined),
    "a subject",
  );
  expect(heard[0]).toMatch(/sessions/i);
  client.close();
  ear.close();
  expect(stage.logged.filter((entry) => "err" in entry)).toEqual([]);
});

/** The answers to frames that are sent at once on one connection, one each; and it goes on. */
async function answers(client: Client, texts: readonly string[]): Promise<Frame[]> {
  const from = client.frames.length;
  for (const text of texts) client.ws.send(text);
  client.send({ type: "heartbeat", id: "behind", payload: { ts: 1 } });
  await client.until(
    () => client.frames.slice(from).find(({ type }) => type === "heartbeat.ack"),
    "the ack",
  );
  return client.frames.slice(from, -1);
}

const shown = ({ type, code, message, path }: Frame & { path?: string }): unknown => ({
  type,
  code,
  path,
  saysWhy: (message ?? "") !== "" && (message ?? "").length < 400,
});

describe("over a WebSocket", () => {
  test("[CON3] [C28] what is no object is malformed, each on a connection of its own", async () => {
    for (const [what, text] of NO_OBJECTS) {
      const client = await stage.connected(edge);
      const [error, ...more] = await answers(client, [text]);
      expect([what, error?.type, error?.code, more]).toEqual([what, "error", "malformed", []]);
      client.close();
    }
  });

  test.each([
    ["ids that are none", BAD_ID_COMMANDS],
    ["poisoned values", POISONED_COMMANDS],
    ["payloads that are no objects", WRONG_PAYLOADS],
  ] as const)(
    "[CON3] [C28] %s: a clear error each, with its place, and the connection goes on",
    async (_what, rows) => {
      expect(rows.length).toBeGreaterThan(50);
      for (const { type } of GOOD_COMMANDS)
        expect(rows.some((row) => row.type === type)).toBe(true);
      // Eight malformed frames close a connection.
      const [own, shared] = [rows.filter(isMalformed), rows.filter((row) => !isMalformed(row))];
      const groups = [...inGroupsOf(7, own), ...inGroupsOf(100, shared)];
      for (const group of groups) {
        const client = await stage.connected(edge);
        const found = await answers(
          client,
          group.map(({ text }) => text),
        );
        expect(found.map((frame, i) => [group[i]?.name, shown(frame)])).toEqual(
          group.map(({ name, code, field }) => [
            name,
            {
              type: "error",
              code,
              path: expect.stringContaining(place(field)) as string,
              saysWhy: true,
            },
          ]),
        );
        client.close();
      }
    },
  );
});

describe("over HTTP", () => {
  test("[HTTP1] [C28] what is no object is malformed", async () => {
    for (const path of ["/v1/sessions", "/v1/sessions/s/runs", "/v1/sessions/s/runs/r/commands"]) {
      for (const [what, text] of [...NO_OBJECTS, ["no UTF-8", ""] as const]) {
        // RFC 8259 lets a reader pass over it.
        if (what === "a byte order mark") continue;
        const body = what === "no UTF-8" ? Buffer.from([0x22, 0xff, 0x22]) : Buffer.from(text);
        const found = await ask(`POST ${path}`, {}, body);
        expect([what, found.status, found.code]).toEqual([what, 400, "malformed"]);
      }
    }
  });

  test("[HTTP1] [C28] commands to a run that are none: 422, or 400 where the id is wrong", async () => {
    const rows = [...BAD_ID_COMMANDS, ...POISONED_COMMANDS, ...WRONG_PAYLOADS].filter(
      ({ text }) => text.includes('"session_id":"ses_1"') && text.includes('"run_id":"run_1"'),
    );
    expect(rows.length).toBeGreaterThan(500);
    const path = "POST /v1/sessions/ses_1/runs/run_1/commands";
    for (const group of inGroupsOf(50, rows)) {
      const found = await Promise.all(group.map(({ text }) => ask(path, {}, Buffer.from(text))));
      expect(found.map(({ status, code }, i) => [group[i]?.name, status, code])).toEqual(
        group.map(({ name, code }) => [name, code === "malformed" ? 400 : 422, code]),
      );
    }
  });

  test("[HTTP1] [C28] an id in the path that is none is 422, over every path", async () => {
    const good = JSON.stringify({ agent: "a", input: 1 });
    const command = JSON.stringify({ type: "run.cancel", payload: {} });
    const paths = (id: string): readonly (readonly [target: string, body?: string])[] => [
      [`GET /v1/sessions/${id}`],
      [`GET /v1/sessions/${id}/events`],
      [`GET /v1/sessions/${id}/artifacts/a`],
      [`GET /v1/sessions/${id}/runs/r`],
      [`GET /v1/sessions/${id}/runs/r/events`],
      [`GET /v1/sessions/s/runs/${id}`],
      [`GET /v1/sessions/s/runs/${id}/events`],
      [`GET /v1/sessions/s/artifacts/${id}`],
      [`POST /v1/sessions/${id}/runs`, good],
      [`POST /v1/sessions/${id}/members`, '{"user":"bob","role":"viewer"}'],
      [`POST /v1/sessions/${id}/runs/r/commands`, command],
      [`POST /v1/sessions/s/runs/${id}/commands`, command],
    ];
    for (const id of BAD_IDS) {
      // As it is, where a path may hold it, and escaped.
      const forms = /^[!-~]+$/.test(id) && !id.includes("/") ? [id, escaped(id)] : [escaped(id)];
      for (const form of forms) {
        const rows = paths(form);
        const found = await Promise.all(rows.map(([target, body]) => ask(target, {}, body)));
        const wanted = id === "" ? [404, 422] : [422];
        expect(
          found.map(({ status = 0, code }, i) => [rows[i]?.[0], wanted.includes(status), code]),
        ).toEqual(
          rows.map(([target], i) => [
            target,
            true,
            found[i]?.status === 404 ? "not_found" : "invalid",
          ]),
        );
      }
    }
    for (const form of ["%", "%zz", "%ff", "%c0%af", "%u0041"]) {
      const rows = paths(form);
      const found = await Promise.all(rows.map(([target, body]) => ask(target, {}, body)));
      expect(found.map(({ status, code }) => [status, code])).toEqual(
        rows.map(() => [422, "invalid"]),
      );
    }
  });

  test("[HTTP1] [HTTP3] [C28] an Idempotency-Key that is none is 400", async () => {
    for (const key of BAD_IDS.filter((id) => /^[ -~]+$/.test(id))) {
      for (const [path, body] of [
        ["/v1/sessions", "{}"],
        ["/v1/sessions/s/runs", '{"agent":"a","input":1}'],
        ["/v1/sessions/s/runs/r/commands", '{"type":"run.cancel","payload":{}}'],
      ]) {
        const found = await ask(`POST ${path}`, { "Idempotency-Key": key }, body);
        expect([key, path, found.status, found.code]).toEqual([key, path, 400, "malformed"]);
      }
    }
  });

  test("[HTTP1] [C28] queries that are none are 422", async () => {
    const queries = [
      ...["", "x", "1-2", "-1-2-t", "1-2-T", "1-99999999999999999999-t", "1-2-t%00", "%ff"].map(
        (cursor) => `cursor=${cursor}`,
      ),
      ...["", "0", "-1", "1.5", "1e3", "0x10", "1001", "99999999999", "%31%00", "*", "NaN"].map(
        (limit) => `limit=${limit}`,
      ),
    ];
    const paths = ["/v1/sessions/s/events", "/v1/sessions/s/runs/r/events"];
    const rows = paths.flatMap((path) => queries.map((query) => `GET ${path}?${query}`));
    const found = await Promise.all(rows.map((target) => ask(target)));
    expect(found.map(({ status, code }, i) => [rows[i], status, code])).toEqual(
      rows.map((target) => [target, 422, "invalid"]),
    );
  });

  test("[HTTP4] [C28] a body of 10 MB is 413 or cut off, and the node goes on", async () => {
    for (const length of [600_000, 10_000_000]) {
      const found = await ask("POST /v1/sessions", {}, Buffer.alloc(length, 0x20));
      expect([undefined, 413]).toContain(found.status);
      if (length < 1_000_000) expect(found).toMatchObject({ status: 413, code: "too_large" });
    }
  });
});

const isMalformed = ({ code }: BadCommand): boolean => code === "malformed";

/** As `path` of an error shows it. */
const place = (field: string | number): string =>
  typeof field === "number" ? `[${field}]` : field;

function inGroupsOf<T>(size: number, items: readonly T[]): T[][] {
  const count = Math.ceil(items.length / size);
  return Array.from({ length: count }, (_, i) => items.slice(i * size, (i + 1) * size));
}

const escaped = (id: string): string =>
  [...Buffer.from(id)].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");

interface Found {
  /** Undefined: the connection ended without an answer. */
  readonly status: number | undefined;
  readonly code: string | undefined;
}

/** A request whose target is sent as it is, and what it came to: a problem, or the end. */
async function ask(
  target: string,
  headers: Readonly<Record<string, string>> = {},
  body: string | Uint8Array = "",
): Promise<Found> {
  const bytes = Buffer.from(body);
  const lines = Object.entries({
    Host: "localhost",
    Authorization: "Bearer dev.acme.ann",
    ...headers,
    ...(target.startsWith("POST") ? { "Content-Length": String(bytes.length) } : {}),
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  const raw = await RawSocket.open(edge.port);
  raw.write(Buffer.concat([Buffer.from(`${target} HTTP/1.1\r\n${lines.join("")}\r\n`), bytes]));
  await raw.until(() => raw.ended || raw.isAnswered, `an answer to ${target}`);
  const { status, body: text } = raw;
  raw.destroy();
  if (text === "") return { status, code: undefined };
  const { code }: { code?: string } = JSON.parse(text);
  return { status, code };
}
