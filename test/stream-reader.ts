import { eventually } from "@throughline/testkit";
import { get, type IncomingMessage } from "node:http";
import { createGunzip } from "node:zlib";
import type { Frame } from "./raw-client.ts";

export interface StreamOptions {
  /** Behind this event. */
  readonly cursor?: string;
  readonly headers?: Record<string, string>;
}

/** An SSE stream that hides nothing: no reconnect, every message kept. Takes gzip where it is asked to. */
export class StreamReader {
  readonly frames: Frame[] = [];
  readonly response: IncomingMessage;
  /** Whether the server has ended it. */
  ended = false;
  #text = "";

  private constructor(response: IncomingMessage) {
    this.response = response;
    const isGzip = response.headers["content-encoding"] === "gzip";
    const body = isGzip ? response.pipe(createGunzip()) : response;
    body.on("data", (chunk: Buffer) => this.#take(chunk.toString("utf8")));
    body.on("error", () => undefined);
    response.on("error", () => undefined);
    response.on("end", () => (this.ended = true));
  }

  /** Asks `url` (an edge's or a load balancer's) for the events of a run; resolves with the response's head. */
  static open(
    url: string,
    { session, run }: { session: string; run: string },
    { cursor, headers = {} }: StreamOptions = {},
  ): Promise<StreamReader> {
    return new Promise((resolve, reject) => {
      const behind = cursor === undefined ? {} : { "last-event-id": cursor };
      const options = {
        agent: false,
        headers: {
          accept: "text/event-stream",
          authorization: "Bearer dev.acme.ann",
          ...behind,
          ...headers,
        },
      } as const;
      const request = get(
        `${url}/v1/sessions/${session}/runs/${run}/events`,
        options,
        (response) => {
          if (response.statusCode === 200) resolve(new StreamReader(response));
          else reject(new Error(`the stream was refused with ${response.statusCode}`));
        },
      );
      request.on("error", reject);
    });
  }

  /** Durable events. */
  events(): Frame[] {
    return this.frames.filter(({ seq }) => seq !== undefined);
  }

  frame(matches: (frame: Frame) => boolean, timeoutMs = 15_000): Promise<Frame> {
    return eventually(() => this.frames.find(matches), {
      timeoutMs,
      what: () => `a message; last were ${JSON.stringify(this.frames.slice(-3)).slice(0, 600)}`,
    });
  }

  /** Reads nothing any more, until {@link resume}. */
  pause(): void {
    this.response.pause();
  }

  resume(): void {
    this.response.resume();
  }

  /** Like a pulled cable. */
  terminate(): void {
    this.response.destroy();
  }

  #take(text: string): void {
    const blocks = (this.#text + text).split("\n\n");
    this.#text = blocks.pop() ?? "";
    for (const block of blocks) {
      const lines = block.split("\n").filter((line) => line.startsWith("data: "));
      if (lines.length === 0) continue;
      const frame: Frame = JSON.parse(lines.map((line) => line.slice(6)).join("\n"));
      this.frames.push(frame);
    }
  }
}
