import type { Edge } from "../src/edge.ts";

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Record<string, unknown>;
}

/** One user's HTTP calls to an edge. */
export class Api {
  readonly #edge: Edge;
  readonly #authorization: string;

  constructor(edge: Edge, token = "dev.acme.ann") {
    this.#edge = edge;
    this.#authorization = `Bearer ${token}`;
  }

  get(path: string): Promise<Answer> {
    return answerOf(this.raw(path));
  }

  post(path: string, body: unknown, key?: string): Promise<Answer> {
    const headers = key === undefined ? {} : { "idempotency-key": key };
    return answerOf(this.raw(path, { method: "POST", headers, body: JSON.stringify(body) }));
  }

  raw(
    path: string,
    init: { method?: string; headers?: object; body?: string } = {},
  ): Promise<Response> {
    const headers = { ...init.headers, authorization: this.#authorization };
    return fetch(`http://127.0.0.1:${this.#edge.port}${path}`, { ...init, headers });
  }
}

async function answerOf(response: Promise<Response>): Promise<Answer> {
  const { status, headers, json } = await response.then(async (r) => ({
    status: r.status,
    headers: r.headers,
    json: JSON.parse(await r.text()) as unknown,
  }));
  if (typeof json !== "object" || json === null) throw new Error("the answer is no JSON object");
  return { status, headers, body: { ...json } };
}
