/** A client of event streams (HTML, "Server-sent events") that can be slow, and shows what no EventSource does. */
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import type { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { eventually } from "./eventually.ts";

export interface StreamMessage {
  /** The `id` of this message; undefined where it has none. */
  readonly id: string | undefined;
  /** Undefined: a message that only moves the place. */
  readonly data: string | undefined;
}

export class EventStreamClient {
  readonly messages: StreamMessage[] = [];
  /** Lines that begin with a colon. */
  comments = 0;
  /** What an EventSource would come back with. */
  lastEventId: string | undefined;
  /** The last `retry:`. */
  retryMs: number | undefined;
  /** Of the body, as they came. */
  bytes = 0;
  /** How the response ended: by its last chunk, or cut off. */
  ended: "whole" | "cut" | undefined;
  readonly response: IncomingMessage;
  /** Resolves when the response is over. */
  readonly over: Promise<"whole" | "cut">;
  readonly #request: ClientRequest;
  readonly #body: Readable;
  #listener: ((message: StreamMessage) => void) | undefined;
  /** What of the body is no whole message yet; all of it where the response is no stream. */
  rest = "";

  private constructor(sent: ClientRequest, response: IncomingMessage) {
    this.#request = sent;
    this.response = response;
    const isGzip = response.headers["content-encoding"] === "gzip";
    this.#body = isGzip ? response.pipe(createGunzip()) : response;
    this.#body.setEncoding("utf8");
    this.#body.on("data", (text: string) => this.#take(text));
    this.over = new Promise((resolve) => {
      const end = (how: "whole" | "cut"): void => {
        this.ended ??= how;
        resolve(this.ended);
      };
      this.#body.on("end", () => end("whole"));
      this.#body.on("error", () => end("cut"));
      for (const each of [response, sent]) each.on("error", () => end("cut"));
      response.on("close", () => {
        if (!isGzip || !response.complete) end("cut");
      });
    });
  }

  /** Resolves with the response's head, whatever its status. */
  static open(
    url: string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<EventStreamClient> {
    return new Promise((resolve, reject) => {
      const sent = request(
        url,
        { headers: { accept: "text/event-stream", ...headers }, agent: false },
        (response) => resolve(new EventStreamClient(sent, response)),
      );
      sent.once("error", reject);
      sent.end();
    });
  }

  get status(): number {
    return this.response.statusCode ?? 0;
  }

  /** Stops reading: the socket's buffers fill. */
  pause(): void {
    this.#body.pause();
  }

  resume(): void {
    this.#body.resume();
  }

  /** Called with each message from the first on. One listener; the last one given counts. */
  listen(listener: (message: StreamMessage) => void): void {
    this.#listener = listener;
    this.messages.forEach(listener);
  }

  /** Goes away without a word. */
  close(): void {
    this.#request.destroy();
  }

  /** Waits for a message that is so. */
  async message(isIt: (message: StreamMessage) => boolean): Promise<StreamMessage> {
    await eventually(() => this.messages.some(isIt));
    const found = this.messages.find(isIt);
    if (found === undefined) throw new Error("the message is gone");
    return found;
  }

  /** Waits for the response's end. */
  async end(): Promise<"whole" | "cut"> {
    await eventually(() => this.ended !== undefined);
    return this.ended ?? "cut";
  }

  #take(text: string): void {
    this.bytes += Buffer.byteLength(text);
    this.rest += text;
    const blocks = this.rest.split("\n\n");
    this.rest = blocks.pop() ?? "";
    for (const block of blocks) this.#block(block);
  }

  #block(block: string): void {
    const fields = new Map<string, string>();
    for (const line of block.split("\n")) {
      if (line.startsWith(":")) this.comments += 1;
      const colon = line.indexOf(": ");
      if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 2));
    }
    const [id, data, retry] = [fields.get("id"), fields.get("data"), fields.get("retry")];
    if (id !== undefined) this.lastEventId = id;
    if (retry !== undefined) this.retryMs = Number(retry);
    if (id === undefined && data === undefined) return;
    this.messages.push({ id, data });
    this.#listener?.({ id, data });
  }
}
