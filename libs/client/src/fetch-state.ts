/** Fetches a run's state over HTTP, from any of the nodes: each has all of them. */
import type { RunState } from "@throughline/protocol";
import type { ConnectionOptions } from "./connection/connection.ts";

const TIMEOUT_MS = 30_000;

/**
 * @param path as a snapshot's `state_url` names it
 * @throws where no node gives it
 */
export async function fetchState(
  options: Pick<ConnectionOptions, "urls" | "token">,
  path: string,
  signal: AbortSignal,
): Promise<RunState> {
  const { token, urls } = options;
  const bearer = typeof token === "string" ? token : await token();
  let failure: unknown;
  for (const url of urls) {
    try {
      return await fetchFrom(url, path, bearer, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      failure = error;
    }
  }
  throw failure;
}

async function fetchFrom(
  edge: string,
  path: string,
  bearer: string,
  signal: AbortSignal,
): Promise<RunState> {
  const base = new URL(edge);
  base.protocol = base.protocol === "wss:" ? "https:" : "http:";
  const url = new URL(path, base);
  // The token is for this server; a name that leads elsewhere would carry it there.
  if (url.origin !== base.origin) throw new TypeError(`a state of another server: ${url.origin}`);
  const response = await fetch(url, {
    headers: { Authorization: `Bearer ${bearer}` },
    signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    redirect: "error",
  });
  if (!response.ok) throw new Error(`${response.status} for ${url.pathname}`);
  const body: unknown = await response.json();
  if (!hasState(body)) throw new TypeError(`no state in the answer of ${url.pathname}`);
  return body.state;
}

/** As for frames: what an edge sends needs sorting, not suspicion. */
function hasState(body: unknown): body is { state: RunState } {
  if (typeof body !== "object" || body === null || !("state" in body)) return false;
  const { state } = body;
  return (
    typeof state === "object" &&
    state !== null &&
    "seq" in state &&
    Number.isSafeInteger(state.seq) &&
    "status" in state
  );
}
