import type { SeededRandom } from "@throughline/testkit";
import { GOOD_COMMANDS, type JsonObject, pathsOf, textWith } from "./golden-commands.ts";
import { BAD_IDS } from "./hostile-inputs.ts";
import { closePayload, frameBytes, type FrameSpec, handshakeHead, OPCODE } from "./raw-socket.ts";

/** What good traffic is about: a session and a run that the fuzzing user may steer, and a cursor of the run. */
export interface FuzzTarget {
  readonly session: string;
  readonly run: string;
  readonly cursor: string;
  readonly token: string;
}

/**
 * Valid traffic, mutated: at a member of a command, at the bytes of its text, at the frame around it, at the
 * lines of a request, and in how all that is cut into packets. Most of it stays near to what is right, or
 * nothing would get further than the first check.
 */
export class FuzzGrammar {
  readonly #random: SeededRandom;
  #target: FuzzTarget;
  #count = 0;

  constructor(random: SeededRandom, target: FuzzTarget) {
    this.#random = random;
    this.#target = target;
  }

  /** From now on the traffic is about something else. */
  aim(target: FuzzTarget): void {
    this.#target = target;
  }

  /** The bytes of a connection's frames, one input each. */
  frames(count: number): Buffer[] {
    return Array.from({ length: count }, () => this.#frame());
  }

  /** One request, or several behind one another: how many, and their bytes. */
  requests(): { readonly count: number; readonly bytes: Buffer } {
    const count = this.#random.chance(0.9) ? 1 : this.#random.between(2, 4);
    const all = Array.from({ length: count }, () => this.#request());
    return { count, bytes: Buffer.concat(all) };
  }

  /** A handshake's head, good for the most part. */
  handshake(): Buffer {
    const { session, run, cursor, token } = this.#target;
    const query = this.#random.pick([
      "",
      "",
      `?session=${session}`,
      `?session=${session}&run=${run}&cursor=${cursor}`,
    ]);
    const head = handshakeHead({
      path: `/v1/connect${query}`,
      headers: { Authorization: `Bearer ${token}` },
    });
    return this.#random.chance(0.8) ? Buffer.from(head) : this.#spoiled(this.#mutatedHead(head));
  }

  /** Cut into packets at random places. */
  packets(bytes: Buffer): Buffer[] {
    if (this.#random.chance(0.5) || bytes.length < 2) return [bytes];
    const cuts = Array.from({ length: this.#random.between(1, 4) }, () =>
      this.#random.int(bytes.length),
    );
    const places = [0, ...cuts.toSorted((a, b) => a - b), bytes.length];
    return places.slice(1).map((end, i) => bytes.subarray(places[i], end));
  }

  #frame(): Buffer {
    const random = this.#random;
    if (random.chance(0.08)) return this.#control();
    const payload = random.chance(0.96)
      ? Buffer.from(this.#command())
      : this.#spoiled(Buffer.from(this.#command()));
    if (random.chance(0.2)) return this.#fragments(payload);
    const spec: FrameSpec = { opcode: random.chance(0.97) ? OPCODE.text : random.int(16), payload };
    return random.chance(0.97) ? frameBytes(spec) : this.#misframed(spec);
  }

  #misframed(spec: FrameSpec): Buffer {
    const random = this.#random;
    const bytes = frameBytes({
      ...spec,
      ...random.pick<Partial<FrameSpec>>([
        { rsv: random.between(1, 7) },
        { masked: false },
        { fin: false },
        { lengthBytes: 8 },
        { lengthBytes: 8, saidLength: BigInt(random.int(2 ** 31)) * BigInt(random.int(2 ** 31)) },
        { lengthBytes: 2, saidLength: BigInt(random.int(65_536)) },
      ]),
    });
    return random.chance(0.5) ? bytes : this.#spoiled(bytes);
  }

  #control(): Buffer {
    const random = this.#random;
    const payload = Buffer.alloc(random.pick([0, 1, 2, 10, 124, 125]), random.int(256));
    if (random.chance(0.8)) {
      return frameBytes({ opcode: random.pick([OPCODE.ping, OPCODE.pong]), payload });
    }
    const spec = random.pick<FrameSpec>([
      { opcode: OPCODE.ping, payload: Buffer.alloc(random.between(126, 300)) },
      { opcode: OPCODE.ping, payload, fin: false },
      { opcode: OPCODE.continuation, payload },
      { opcode: OPCODE.close, payload: closePayload(random.int(65_536), payload) },
    ]);
    return frameBytes(spec);
  }

  #fragments(payload: Buffer): Buffer {
    const parts = this.packets(payload);
    return Buffer.concat(
      parts.flatMap((part, i) => {
        const frame = frameBytes({
          opcode: i === 0 ? OPCODE.text : OPCODE.continuation,
          payload: part,
          fin: i === parts.length - 1,
        });
        return this.#random.chance(0.1) ? [frame, this.#control()] : [frame];
      }),
    );
  }

  /** Text that is JSON for the most part. */
  #command(ofType?: string): string {
    const random = this.#random;
    const { session, run, cursor } = this.#target;
    const good = random.pick(
      ofType === undefined ? GOOD_COMMANDS : GOOD_COMMANDS.filter(({ type }) => type === ofType),
    );
    const command: JsonObject = {
      ...good,
      // Some come again, as a client's retries do.
      id: random.chance(0.9)
        ? `f${random.seed}_${(this.#count += 1)}`
        : `f${random.seed}_${random.int(50)}`,
      ...(good["session_id"] === undefined ? {} : { session_id: session }),
      ...(good["run_id"] === undefined ? {} : { run_id: run }),
    };
    const text = JSON.stringify(command).replaceAll(
      "184-98765-k3f9",
      random.chance(0.7) ? cursor : this.#cursor(),
    );
    if (random.chance(0.3)) return text;
    const mutated: JsonObject = JSON.parse(text);
    return textWith(mutated, random.pick(pathsOf(mutated)), this.#value(mutated));
  }

  #cursor(): string {
    const random = this.#random;
    const number = (): string =>
      String(random.pick([0, 1, random.int(1_000), 2 ** 53, -1, random.int(2 ** 32)]));
    return `${number()}-${number()}-${this.#target.cursor.split("-")[2] ?? "t"}`;
  }

  /** JSON text to stand anywhere. */
  #value(command: JsonObject): string {
    const random = this.#random;
    const many = random.pick([1, 10, 300, 3_000]);
    const build = random.pick<() => string>([
      () =>
        random.pick([
          "null",
          "true",
          "0",
          "-1",
          "1e308",
          "1e999",
          "1.5",
          '""',
          "[]",
          "{}",
          "9007199254740993",
        ]),
      () => JSON.stringify(random.pick(BAD_IDS)),
      () => JSON.stringify("x".repeat(many)),
      () => JSON.stringify("é\u0000\u2028😀".repeat(many)),
      () => `"\\ud8${random.between(0, 99).toString().padStart(2, "0")}"`,
      () => `${"[".repeat(many)}${"]".repeat(many)}`,
      () => `{${Array.from({ length: many }, (_, i) => `"k${i}":${i}`).join(",")}}`,
      () => `{"__proto__":{"a":1},"constructor":{"prototype":{}}}`,
      () => JSON.stringify(command),
      () => JSON.stringify(random.pick(GOOD_COMMANDS)["payload"] ?? null),
      () => JSON.stringify({ $artifact: random.pick(["a", "../x", ""]), bytes: -1, sha256: "z" }),
    ]);
    return build();
  }

  #request(): Buffer {
    const random = this.#random;
    const { session, run, cursor, token } = this.#target;
    const part = (good: string): string =>
      random.chance(0.85) ? good : encodeURIComponent(random.pick(BAD_IDS)).slice(0, 300);
    const base = `/v1/sessions/${part(session)}`;
    const [method, target] = random.pick<readonly [string, string]>([
      ["GET", "/v1/sessions"],
      ["GET", "/v1/agents"],
      ["GET", base],
      ["GET", `${base}/runs/${part(run)}`],
      ["GET", `${base}/events?cursor=${random.chance(0.7) ? cursor : this.#cursor()}`],
      ["GET", `${base}/runs/${part(run)}/events?limit=${random.between(-1, 1_100)}`],
      ["GET", `${base}/artifacts/${part("art_1")}`],
      ["GET", "/v1/connect"],
      ["POST", "/v1/sessions"],
      ["POST", `${base}/runs`],
      ["POST", `${base}/members`],
      ["POST", `${base}/runs/${part(run)}/commands`],
      [random.pick(["PUT", "HEAD", "DELETE", "OPTIONS", "TRACE", "get", "G\u0000T"]), base],
    ]);
    const body = method === "POST" ? this.#body(target) : "";
    const isChunked = method === "POST" && random.chance(0.2);
    const length = random.chance(0.95) ? Buffer.byteLength(body) : random.int(100_000);
    const sent = isChunked
      ? `${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n0\r\n\r\n`
      : body;
    const lines = [
      `${method} ${target} HTTP/1.1`,
      "Host: localhost",
      `Authorization: Bearer ${random.chance(0.9) ? token : random.pick(["", "a.b.c", "dev..x"])}`,
      ...(random.chance(0.5) ? [`Idempotency-Key: f${random.seed}_${random.int(5_000)}`] : []),
      ...(random.chance(0.1) ? [`Accept: text/event-stream`] : []),
      ...(isChunked
        ? ["Transfer-Encoding: chunked"]
        : method === "POST"
          ? [`Content-Length: ${length}`]
          : []),
      "",
      sent,
    ].join("\r\n");
    if (random.chance(0.8)) return Buffer.from(lines);
    return random.chance(0.5) ? this.#mutatedHead(lines) : this.#spoiled(Buffer.from(lines));
  }

  /** What the path takes, for the most part. */
  #body(target: string): string {
    if (target.endsWith("/members")) {
      const good = { user: "bob", role: "viewer" };
      if (this.#random.chance(0.5)) return JSON.stringify(good);
      return textWith(good, this.#random.pick(pathsOf(good)), this.#value(good));
    }
    if (target.endsWith("/commands") || this.#random.chance(0.1)) return this.#command();
    const text = this.#command(target.endsWith("/runs") ? "run.start" : "session.create");
    // The payload alone, unless it is not there any more.
    return /"payload":(\{.*\})\}$/s.exec(text)?.[1] ?? text;
  }

  /** A line of the head left out, doubled, or made long. */
  #mutatedHead(text: string): Buffer {
    const random = this.#random;
    const lines = text.split("\r\n");
    const at = random.int(Math.max(1, lines.length - 2));
    const line = lines[at] ?? "";
    const instead = random.pick<string[]>([
      [],
      [line, line],
      [`${line}${"x".repeat(random.pick([1, 100, 5_000]))}`],
      [line, ...Array.from({ length: random.pick([10, 60, 200]) }, (_, i) => `X-${i}: ${i}`)],
      [line.toUpperCase()],
      [line.replace(":", " :")],
      [line, "Transfer-Encoding: chunked"],
      [line, "Content-Length: 5"],
      [line, "Expect: 100-continue"],
      [line, "Connection: close"],
    ]);
    return Buffer.from(lines.toSpliced(at, 1, ...instead).join("\r\n"));
  }

  /** Some bytes changed, some left out, some put in. */
  #spoiled(bytes: Buffer): Buffer {
    const random = this.#random;
    let spoiled: Buffer = Buffer.from(bytes);
    for (let times = random.between(1, 4); times > 0 && spoiled.length > 0; times -= 1) {
      const at = random.int(spoiled.length);
      const [before, behind] = [spoiled.subarray(0, at), spoiled.subarray(at)];
      const some = random.between(1, 8);
      spoiled = random.pick<() => Buffer>([
        () => Buffer.concat([before, Buffer.of(random.int(256)), behind.subarray(1)]),
        () => Buffer.concat([before, behind.subarray(some)]),
        () => Buffer.concat([before, Buffer.alloc(some, random.int(256)), behind]),
      ])();
    }
    return spoiled;
  }
}
