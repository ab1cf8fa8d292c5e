/** A provider on this machine: real HTTP, scripted answers, what it was asked. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";

/** A piece of a body goes out in an HTTP chunk of its own, however the network joins them. */
export type Part = string | Uint8Array | Control;

export type Control =
  /** Goes on when the promise is fulfilled. */
  { readonly until: Promise<unknown> } | { readonly does: "cut" | "hang" };

/** The connection is destroyed. */
export const CUT: Control = { does: "cut" };
/** Nothing more comes, and the connection stays. */
export const HANG: Control = { does: "hang" };

export interface Answer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly parts: readonly Part[];
}

export interface Asked {
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: {
    readonly model: string;
    readonly messages: readonly Record<string, unknown>[];
    readonly [name: string]: unknown;
  };
  /** The connection was closed by the client before the answer had ended. */
  readonly left: boolean;
}

export interface LlmServer {
  /** As OPENAI_BASE_URL takes it. */
  readonly url: string;
  /** All requests so far. */
  readonly asked: readonly Asked[];
  /** The next answers, one a request; a function is given the request. A request without an answer gets 500. */
  will(...answers: readonly (Answer | string | ((asked: Asked) => Answer | string))[]): void;
  reset(): void;
  close(): Promise<void>;
}

export async function startLlmServer(): Promise<LlmServer> {
  const asked: { -readonly [K in keyof Asked]: Asked[K] }[] = [];
  const script: (Answer | string | ((asked: Asked) => Answer | string))[] = [];
  const server = createServer((request, response) => {
    const handle = async (): Promise<void> => {
      let text = "";
      for await (const part of request) text += String(part);
      const one = {
        path: request.url ?? "",
        headers: request.headers,
        body: JSON.parse(text),
        left: false,
      };
      asked.push(one);
      response.once("close", () => {
        one.left = !response.writableFinished;
      });
      const next = script.shift() ?? { status: 500, parts: ["nothing is scripted"] };
      const answer = typeof next === "function" ? next(one) : next;
      await send(response, typeof answer === "string" ? { parts: [answer] } : answer);
    };
    handle().catch((error: unknown) => {
      response.destroy(error instanceof Error ? error : undefined);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the server has no port");
  return {
    url: `http://127.0.0.1:${address.port}/v1`,
    asked,
    will: (...answers) => void script.push(...answers),
    reset: () => {
      script.length = 0;
      asked.length = 0;
    },
    close: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function send(response: ServerResponse, answer: Answer): Promise<void> {
  response.writeHead(answer.status ?? 200, {
    "Content-Type": "text/event-stream; charset=utf-8",
    ...answer.headers,
  });
  response.flushHeaders();
  for (const part of answer.parts) {
    if (part === HANG) return;
    if (part === CUT) {
      // What was written before is on its way first.
      await new Promise((resolve) => response.write("", resolve));
      response.destroy();
      return;
    }
    if (typeof part === "object" && "until" in part) await part.until;
    else if (typeof part === "string" || part instanceof Uint8Array)
      await new Promise((resolve) => response.write(part, resolve));
    if (response.destroyed) return;
  }
  response.end();
}

/** Cut before every `size`th byte, within characters and lines. */
export function inPieces(text: string, size: number): Uint8Array[] {
  const bytes = Buffer.from(text, "utf8");
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.subarray(at, at + size));
  return pieces;
}
