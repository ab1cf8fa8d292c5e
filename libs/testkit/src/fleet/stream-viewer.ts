import { EventStreamClient, type StreamMessage } from "../event-stream.ts";
import { ViewerRecord } from "./record.ts";
import type { Watch } from "./watch.ts";

const BASE_MS = 500;
const CAP_MS = 10_000;

/**
 * Follows a run by SSE, as a client that heeds the protocol does: it resumes with `Last-Event-ID`, not before
 * the goaway's time, and after a failure at a time by chance.
 */
export class StreamViewer {
  readonly record: ViewerRecord = new ViewerRecord();
  readonly #watch: Watch;
  #url = 0;
  #cursor: string | undefined;
  #attempt = 0;
  /** After a goaway: when to come back. */
  #notBefore = 0;

  constructor(watch: Watch) {
    this.#watch = watch;
    void this.#follow();
  }

  async #follow(): Promise<never> {
    for (;;) {
      const { code, retryAfterMs } = await this.#connect();
      this.record.lost(code);
      const jitter = Math.random() * Math.min(CAP_MS, BASE_MS * 2 ** this.#attempt);
      const pause = Math.max(this.#notBefore - performance.now(), retryAfterMs, 0);
      this.#notBefore = 0;
      this.#attempt += 1;
      this.#url += 1;
      await new Promise((resolve) => setTimeout(resolve, pause + jitter));
    }
  }

  /** Resolves when the stream is over: 0 by its end, -1 broken off, else with the status of a refusal. */
  async #connect(): Promise<{ code: number; retryAfterMs: number }> {
    const { urls, token, session, run } = this.#watch;
    const url = `${urls[this.#url % urls.length]}/v1/sessions/${session}/runs/${run}/events`;
    const place = this.#cursor === undefined ? {} : { "last-event-id": this.#cursor };
    const headers = { authorization: `Bearer ${token}`, ...place };
    let client: EventStreamClient;
    try {
      client = await EventStreamClient.open(url, headers);
    } catch {
      return { code: -1, retryAfterMs: 0 };
    }
    if (client.status !== 200) {
      client.close();
      const seconds = Number(client.response.headers["retry-after"] ?? 0);
      return { code: client.status, retryAfterMs: seconds * 1_000 };
    }
    this.#attempt = 0;
    this.record.opened();
    client.response.on("data", () => this.record.heard());
    client.listen((message) => this.#message(message));
    const ended = await client.over;
    return { code: ended === "whole" ? 0 : -1, retryAfterMs: 0 };
  }

  #message({ id, data }: StreamMessage): void {
    if (id !== undefined) this.#cursor = id;
    if (data === undefined) return;
    this.record.frame(data);
    const goaway = /^\{"type":"goaway","reconnect_after_ms":(\d+)/.exec(data)?.[1];
    if (goaway !== undefined) this.#notBefore = performance.now() + Number(goaway);
  }
}
