import type { HttpRequest } from "../transport/http.ts";
import { problem, type Reply } from "../transport/problem.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

/** The JSON object of the body; none at all is an empty one. */
export function bodyOf(
  request: HttpRequest,
):
  | { readonly ok: true; readonly value: JsonObject }
  | { readonly ok: false; readonly reply: Reply } {
  if (request.body.byteLength === 0) return { ok: true, value: {} };
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(request.body));
  } catch {
    return { ok: false, reply: problem("malformed", "the body is no JSON") };
  }
  if (!isObject(value))
    return { ok: false, reply: problem("malformed", "the body is no JSON object") };
  return { ok: true, value };
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
