import { get, type IncomingMessage } from "node:http";
import { ViewerRecord } from "./record.ts";
import type { Watch } from "./watch.ts";

const BASE_MS = 500;
const CAP_MS = 10_000;

/**
 * Follows a run by SSE, as a client that heeds the protocol does: it resumes with `Last-Event-ID`, waits the
 * goaway's time, and a jittered one after a failure.
 */
export class StreamViewer {
  readonly record: ViewerRecord = new ViewerRecord();
  readonly #watch: Watch;
  #url = 0;
  #cursor: string | undefined;
  #attempt = 0;
  #stop: () => void = () => undefined;
  #stopped = false;
  /** After a goaway: how long to wait. */
  #pauseMs: number | undefined;

  constructor(watch: Watch) {
    this.#watch = watch;
    this.#connect();
  }

  stop(): void {
    this.#stopped = true;
    this.#stop();
  }

  #connect(): void {
    const { urls, token, session, run } = this.#watch;
    const base = urls[this.#url % urls.length];
    const headers = {
      authorization: `Bearer ${token}`,
      accept: "text/event-stream",
      ...(this.#cursor === undefined ? {} : { "last-event-id": this.#cursor }),
    };
    let isOver = false;
    const over = (code: number, retryAfterMs = 0): void => {
      if (isOver || this.#stopped) return;
      isOver = true;
      request.destroy();
      this.record.lost(code);
      this.#again(retryAfterMs);
    };
    const url = `${base}/v1/sessions/${session}/runs/${run}/events`;
    const request = get(url, { headers, agent: false }, (response) => {
      response.on("error", () => over(-1));
      if (response.statusCode !== 200) {
        response.resume();
        over(response.statusCode ?? -1, Number(response.headers["retry-after"] ?? 0) * 1_000);
        return;
      }
      this.#attempt = 0;
      this.record.opened();
      this.#read(response);
      response.on("end", () => over(response.complete ? 0 : -1));
      response.on("aborted", () => over(-1));
    });
    request.on("error", () => over(-1));
    this.#stop = () => request.destroy();
  }

  #read(response: IncomingMessage): void {
    let rest = "";
    response.setEncoding("utf8");
    response.on("data", (text: string) => {
      this.record.heard();
      const blocks = (rest + text).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) this.#message(block);
    });
  }

  #message(block: string): void {
    const data: string[] = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("data: ")) data.push(line.slice(6));
      if (line.startsWith("id: ")) this.#cursor = line.slice(4);
    }
    if (data.length === 0) return;
    const text = data.join("\n");
    this.record.frame(text);
    const goaway = /"type":"goaway".*"reconnect_after_ms":(\d+)/.exec(text)?.[1];
    if (goaway !== undefined) this.#pauseMs = Number(goaway);
  }

  #again(retryAfterMs: number): void {
    const jitter = Math.random() * Math.min(CAP_MS, BASE_MS * 2 ** this.#attempt);
    const pause = Math.max(this.#pauseMs ?? 0, retryAfterMs);
    this.#pauseMs = undefined;
    this.#attempt += 1;
    this.#url += 1;
    const timer = setTimeout(() => this.#connect(), pause + jitter);
    this.#stop = () => clearTimeout(timer);
  }
}
