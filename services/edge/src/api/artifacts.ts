import { isId } from "@throughline/protocol";
import type { Principal } from "../auth/principal.ts";
import type { HttpRequest } from "../transport/http.ts";
import { problem, type Reply } from "../transport/problem.ts";
import type { ApiServices } from "./services.ts";
import { NOT_AN_ID, permitted } from "./visible.ts";

/** An object is in memory as a whole while it is sent; larger ones need streaming. */
const MAX_BYTES = 32 * 1024 * 1024;

/** What a browser may do with it: save it. It is what an agent or another user made, on the API's own origin. */
const HARMLESS = {
  "X-Content-Type-Options": "nosniff",
  "Content-Security-Policy": "sandbox; default-src 'none'",
  "Cache-Control": "private, no-store",
} as const;

/** GET /v1/sessions/{s}/artifacts/{id}: the whole object. Ids name nothing outside their session. */
export async function getArtifact(
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
): Promise<Reply> {
  const [session, id] = request.params;
  if (!isId(id)) return problem("invalid", `artifact: ${NOT_AN_ID}`);
  const found = await permitted(services, principal, "read", session);
  if ("status" in found) return found;
  const ref = { tenant: principal.tenant, session: found.session };
  const stat = await services.objects.stat(ref, id);
  if (stat === undefined) return notThere();
  if (stat.bytes > MAX_BYTES) {
    return problem("too_large", `the object has ${stat.bytes} bytes, ${MAX_BYTES} can be fetched`);
  }
  if (!services.downloads.tryTake()) {
    return problem("overloaded", "too many downloads at once", { retryAfterMs: 1_000 });
  }
  const sent = once(() => services.downloads.give());
  try {
    const body = await services.objects.get(ref, id);
    if (body === undefined) {
      sent();
      return notThere();
    }
    const headers = {
      ...HARMLESS,
      "Content-Type": mediaType(stat.media_type),
      "Content-Disposition": `attachment; filename="${id}"`,
      ETag: `"${stat.sha256}"`,
    };
    return { status: 200, headers, body, sent };
  } catch (error) {
    sent();
    throw error;
  }
}

function notThere(): Reply {
  return problem("not_found", "the session has no such artifact");
}

/** What was said of it once becomes a header now. */
function mediaType(text: string): string {
  return /^[A-Za-z0-9!#$&^_.+-]{1,64}\/[A-Za-z0-9!#$&^_.+-]{1,64}$/.test(text)
    ? text
    : "application/octet-stream";
}

function once(run: () => void): () => void {
  let done = false;
  return () => {
    if (!done) run();
    done = true;
  };
}
