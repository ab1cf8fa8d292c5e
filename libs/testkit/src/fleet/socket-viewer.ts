import { createClient } from "@throughline/client";
import { WebSocket } from "ws";
import { ViewerRecord } from "./record.ts";
import type { Watch } from "./watch.ts";

/** The client SDK follows a run; beneath it each frame is written down as it comes off the wire. */
export function watchBySocket({ urls, token, session, run }: Watch): {
  record: ViewerRecord;
  stop: () => void;
} {
  const record = new ViewerRecord();
  class Tapped extends WebSocket {
    #isUsed = true;

    constructor(url: string, protocols: string[], init?: { headers: Record<string, string> }) {
      super(url, protocols, init);
      this.on("open", () => record.opened());
      this.on("message", (data: Buffer) => {
        if (this.#isUsed) record.frame(data.toString("utf8"));
      });
      this.on("ping", () => record.heard());
      this.on("close", (code) => this.#leave(code));
      this.on("error", () => undefined);
    }

    /** The SDK leaves: what still comes is nothing that it has seen. */
    override close(code?: number, data?: string | Buffer): void {
      this.#leave(code ?? 1000);
      super.close(code, data);
    }

    #leave(code: number): void {
      if (this.#isUsed) record.lost(code);
      this.#isUsed = false;
    }
  }
  const client = createClient({ urls, token, webSocket: Tapped, tokenIn: "header" });
  void follow(client.follow({ session, run }));
  return { record, stop: () => client.close() };
}

async function follow(events: AsyncIterable<unknown>): Promise<void> {
  try {
    for await (const event of events) void event;
  } catch {
    // Closed: the record tells how far it came.
  }
}
