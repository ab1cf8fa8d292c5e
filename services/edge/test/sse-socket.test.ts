/** A stream's socket against a response that does what uWebSockets was seen to do when its client does not read. */
import { describe, expect, test } from "vitest";
import { SseSocket } from "../src/transport/sse-socket.ts";
import { StreamTopics } from "../src/transport/stream-topics.ts";
import type { UwsResponse } from "../src/transport/uws.ts";

/** The kernel takes `room` bytes; what it does not take uWebSockets keeps, and hands over before the next write. */
class FakeResponse implements UwsResponse {
  room = Infinity;
  taken = "";
  #kept = "";
  ended: { readonly isLast: boolean } | undefined;
  closed = false;
  #isCorked = false;
  #writable: (offset: number) => boolean = () => true;
  #aborted: () => void = () => undefined;

  /** The client reads: the kernel has room again, and says so. */
  drain(bytes: number): void {
    this.room += bytes;
    this.#writable(0);
  }

  get kept(): number {
    return this.#kept.length;
  }

  write(part: string | Uint8Array): boolean {
    if (!this.#isCorked) throw new Error("a write outside of a cork");
    if (this.ended !== undefined || this.closed)
      throw new Error("a write to a response that is over");
    this.#kept += Buffer.from(part).toString("utf8");
    this.#handOver();
    // An empty one is answered before anything is looked at.
    return part.length === 0 || this.#kept === "";
  }

  end(body: string | Uint8Array = "", isLast = false): UwsResponse {
    this.write(body);
    this.ended = { isLast };
    return this;
  }

  endWithoutBody(): UwsResponse {
    return this.end();
  }

  cork(write: () => void): UwsResponse {
    this.#isCorked = true;
    write();
    this.#isCorked = false;
    return this;
  }

  close(): UwsResponse {
    this.closed = true;
    this.#aborted();
    return this;
  }

  onWritable(handler: (offset: number) => boolean): UwsResponse {
    this.#writable = handler;
    return this;
  }

  onAborted(handler: () => void): UwsResponse {
    this.#aborted = handler;
    return this;
  }

  writeStatus = (): UwsResponse => this;
  writeHeader = (): UwsResponse => this;
  tryEnd = (): readonly [boolean, boolean] => [true, true];
  onData = (): UwsResponse => this;
  getRemoteAddressAsText = (): ArrayBuffer => new ArrayBuffer(0);
  upgrade = (): void => undefined;

  #handOver(): void {
    const taken = this.#kept.slice(0, this.room);
    this.room -= taken.length;
    this.taken += taken;
    this.#kept = this.#kept.slice(taken.length);
  }
}

const frame = (value: string): Uint8Array => Buffer.from(`{"value":"${value}"}`);

function open({ maxBackpressure = 10_000, isLeaving = false } = {}): {
  socket: SseSocket;
  response: FakeResponse;
  topics: StreamTopics;
  told: string[];
  turn: () => void;
} {
  const response = new FakeResponse();
  const topics = new StreamTopics();
  const told: string[] = [];
  let due: (() => void)[] = [];
  const socket = new SseSocket(
    response,
    {},
    {
      topics,
      maxBackpressure,
      isLeaving: () => isLeaving,
      afterTurn: (run) => due.push(run),
    },
  );
  response.onAborted(() => socket.aborted());
  socket.listen({ drained: () => told.push("drained"), closed: () => told.push("closed") });
  const turn = (): void => {
    for (const run of due.splice(0)) run();
  };
  due = [];
  socket.send('{"type":"first"}');
  turn();
  return { socket, response, topics, told, turn };
}

describe("[SSE6] a stream's socket", () => {
  test("writes once what a turn brings, and nothing more after a write that was not taken whole", () => {
    const { socket, response, topics, told, turn } = open();
    socket.subscribe("d1");
    response.room = 10;
    topics.publish("d1", frame("a"));
    socket.send(frame("b"));
    turn();
    const kept = response.kept;
    expect([kept > 0, socket.buffered() > 0]).toEqual([true, true]);
    topics.publish("d1", frame("c"));
    turn();
    socket.comment();
    socket.hold();
    expect(response.kept).toBe(kept);
    // Some of it is progress, and no more than that.
    response.drain(5);
    expect([told, socket.buffered() > 0]).toEqual([["drained"], true]);
    response.drain(Infinity);
    expect([told.length, socket.buffered()]).toEqual([2, 0]);
    expect(response.taken.match(/"value":"."/g)).toEqual([
      '"value":"a"',
      '"value":"b"',
      '"value":"c"',
    ]);
  });

  test("what is over its bound closes it, also when it comes by a topic, which has nobody to tell", () => {
    const { socket, response, topics, told, turn } = open({ maxBackpressure: 1_000 });
    socket.subscribe("d1");
    response.room = 0;
    for (let i = 0; i < 100; i += 1) {
      topics.publish("d1", frame(`${i}`));
      turn();
    }
    expect([response.closed, told.includes("closed"), socket.send(frame("x"))]).toEqual([
      true,
      true,
      "closed",
    ]);
  });
});

describe("[SSE1] a stream that ends", () => {
  test("has brought all that was written, however slowly it was read", () => {
    const { socket, response, topics, told, turn } = open();
    socket.subscribe("d1");
    response.room = 0;
    socket.send(frame("a"));
    turn();
    socket.send(frame("last"));
    socket.end();
    topics.publish("d1", frame("behind the end"));
    expect([response.ended, told]).toEqual([undefined, []]);
    response.drain(10);
    expect(response.ended).toBeUndefined();
    response.drain(Infinity);
    expect(response.ended).toEqual({ isLast: false });
    expect(told.at(-1)).toBe("closed");
    expect(response.taken).toContain('data: {"value":"last"}\n\n');
    expect(response.taken).not.toContain("behind the end");
    expect(socket.send(frame("x"))).toBe("closed");
  });

  test("[LIFE7] ends its connection too where the node is going", () => {
    const { socket, response, told } = open({ isLeaving: true });
    socket.end();
    expect([response.ended, told]).toEqual([{ isLast: true }, ["closed"]]);
  });
});
