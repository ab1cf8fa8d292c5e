/** The client of an OpenAI-compatible chat-completions endpoint: one request, one streamed answer. */
import { openAssembler, type Piece } from "../chat-stream/assemble.ts";
import { decodeChunk } from "../chat-stream/chunk.ts";
import { openPatience, type Patience } from "./patience.ts";
import {
  cutError,
  errorIn,
  protocolError,
  type ProviderError,
  refusedError,
  silentError,
  streamedError,
  unreachableError,
} from "./provider-error.ts";
import { openSse, type SseEvent } from "./sse.ts";

export interface ProviderOptions {
  /** Up to, and without, `/chat/completions`. */
  readonly baseUrl: string;
  /** Local servers need none. */
  readonly apiKey: string | undefined;
  /** How long the provider may say nothing, before its answer and within, in ms. */
  readonly idleMs: number;
}

export interface Provider {
  /**
   * Asks and streams the answer; ends after its `finish` and usage. Throws AgentError with what went wrong,
   * or the signal's reason. Whoever stops iterating ends the request.
   */
  ask(body: unknown, signal: AbortSignal): AsyncGenerator<Piece, void, undefined>;
}

/** After the finish only usage and `[DONE]` can come, and some servers then leave the connection open. */
const AFTER_FINISH_MS = 5_000;
/** Chunks carry ~300 bytes around each token: a very long answer is 20 MiB. */
const MAX_STREAM_BYTES = 128 * 1024 * 1024;
const MAX_ERROR_BYTES = 64 * 1024;

export function openProvider(options: ProviderOptions): Provider {
  const url = `${options.baseUrl.replace(/\/+$/, "")}/chat/completions`;
  return { ask: (body, signal) => ask(url, options, body, signal) };
}

async function* ask(
  url: string,
  options: ProviderOptions,
  body: unknown,
  signal: AbortSignal,
): AsyncGenerator<Piece, void, undefined> {
  signal.throwIfAborted();
  const patience = openPatience(signal);
  try {
    const response = await post(url, options, body, { patience, signal });
    const source = await streamOf(response, options, patience);
    yield* answer(source, options, { patience, signal });
  } finally {
    patience.end();
  }
}

interface Waiting {
  readonly patience: Patience;
  readonly signal: AbortSignal;
}

async function post(
  url: string,
  { apiKey, idleMs }: ProviderOptions,
  body: unknown,
  { patience, signal }: Waiting,
): Promise<Response> {
  const request = fetch(url, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Accept: "text/event-stream",
      ...(apiKey === undefined ? {} : { Authorization: `Bearer ${apiKey}` }),
    },
    body: JSON.stringify(body),
    // A redirect would become a GET, and might lead the conversation elsewhere.
    redirect: "manual",
    signal: patience.signal,
  });
  try {
    return await patience.during(request, idleMs);
  } catch (error) {
    signal.throwIfAborted();
    throw patience.ranOut ? silentError(idleMs) : unreachableError(error);
  }
}

/** The body of an answer that is a stream; of any other, what it says is thrown. */
async function streamOf(
  response: Response,
  options: ProviderOptions,
  patience: Patience,
): Promise<ReadableStream<Uint8Array>> {
  const type = response.headers.get("content-type") ?? "";
  if (response.ok && response.body !== null && !/json|html/.test(type)) return response.body;
  const said = errorIn(parsedOrText(await start(response, options, patience)));
  if (response.ok && said) throw streamedError(redacted(said, options));
  if (response.ok) throw protocolError("it is not a stream");
  throw refusedError({
    status: response.status,
    headers: response.headers,
    error: said && redacted(said, options),
    now: Date.now(),
  });
}

/** As much of a refusal's body as can be had: status and headers say enough without. */
async function start(
  { body }: Response,
  { idleMs }: ProviderOptions,
  patience: Patience,
): Promise<string> {
  if (body === null) return "";
  const parts: Uint8Array[] = [];
  let bytes = 0;
  const reader: ReadableStreamDefaultReader<Uint8Array> = body.getReader();
  try {
    while (bytes < MAX_ERROR_BYTES) {
      const { done, value } = await patience.during(reader.read(), idleMs);
      if (done) break;
      bytes += value.length;
      parts.push(value);
    }
  } catch (error) {
    if (!(error instanceof Error)) throw error;
  }
  return Buffer.concat(parts).toString("utf8");
}

function parsedOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}

/** A provider may quote what it was sent. */
function redacted(error: ProviderError, { apiKey }: ProviderOptions): ProviderError {
  if (apiKey === undefined || error.message == null) return error;
  return { ...error, message: error.message.replaceAll(apiKey, "[key]") };
}

async function* answer(
  source: ReadableStream<Uint8Array>,
  options: ProviderOptions,
  waiting: Waiting,
): AsyncGenerator<Piece, void, undefined> {
  const assembler = openAssembler();
  const sse = openSse();
  const chunks = bytesOf(source, options, waiting, () => assembler.finished);
  for await (const bytes of chunks) {
    for (const event of pushed(sse, bytes)) {
      if (event.data.trim() === "[DONE]") {
        // An explicit end is one, also where no finish reason was given.
        yield* assembler.end("stop");
        return;
      }
      yield* taken(assembler, event, options);
    }
  }
  const last = sse.end();
  const done = last?.data.trim() === "[DONE]";
  if (last !== undefined && !done) yield* tail(assembler, last, options);
  if (!done && !assembler.finished) throw cutError();
  yield* assembler.end("stop");
}

type Assembler = ReturnType<typeof openAssembler>;

function pushed(sse: ReturnType<typeof openSse>, bytes: Uint8Array): SseEvent[] {
  try {
    return sse.push(bytes);
  } catch (error) {
    throw protocolError(error instanceof Error ? error.message : String(error), error);
  }
}

/** Once the answer is finished nothing that follows can make it less whole. */
function taken(assembler: Assembler, event: SseEvent, options: ProviderOptions): Piece[] {
  try {
    return piecesOf(assembler, event, options);
  } catch (error) {
    if (!assembler.finished) throw error;
    return [];
  }
}

function piecesOf(
  assembler: Assembler,
  { event, data }: SseEvent,
  options: ProviderOptions,
): Piece[] {
  // Some servers keep the connection alive with events that carry nothing.
  if (data.trim() === "") return [];
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch (error) {
    throw protocolError("a chunk is not JSON", error);
  }
  const said = errorIn(value) ?? (event === "error" ? errorIn({ error: value }) : undefined);
  if (said) throw streamedError(redacted(said, options));
  const decoded = decodeChunk(value);
  if (!decoded.ok) throw protocolError(decoded.why);
  return assembler.take(decoded.chunk);
}

/** The last event of a body that just ends: whole, or what is left of one that was cut. */
function tail(assembler: Assembler, last: SseEvent, options: ProviderOptions): Piece[] {
  if (typeof parsedOrText(last.data) === "string") return [];
  return taken(assembler, last, options);
}

/** Ends early, instead of failing, once the answer is finished: what follows is of no more use than none. */
async function* bytesOf(
  source: ReadableStream<Uint8Array>,
  { idleMs }: ProviderOptions,
  { patience, signal }: Waiting,
  finished: () => boolean,
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = source.getReader();
  let bytes = 0;
  for (;;) {
    const ms = finished() ? Math.min(idleMs, AFTER_FINISH_MS) : idleMs;
    let read: Awaited<ReturnType<typeof reader.read>>;
    try {
      read = await patience.during(reader.read(), ms);
    } catch (error) {
      signal.throwIfAborted();
      if (finished()) return;
      throw patience.ranOut ? silentError(idleMs) : cutError(error);
    }
    if (read.done) return;
    bytes += read.value.length;
    if (bytes > MAX_STREAM_BYTES)
      throw protocolError(`it is longer than ${MAX_STREAM_BYTES} bytes`);
    yield read.value;
  }
}
