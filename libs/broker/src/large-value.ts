import { createHash } from "node:crypto";
import { isId, MAX_INLINE_BYTES } from "@throughline/protocol";
import { PATIENCE_MS } from "./compare-and-set.ts";
import { BrokerUnavailable, LogCorrupt, ObjectGone } from "./errors.ts";
import type { SessionRef } from "./ids.ts";
import type { ArtifactRef, ObjectStore } from "./object-store.ts";

const RETRY_MS = 100;
const SHA256 = /^[0-9a-f]{64}$/;

/** Whether a JSON value stands for an object: exactly the members of the protocol's artifact ref. */
export function isArtifactRef(value: unknown): value is ArtifactRef {
  if (typeof value !== "object" || value === null || Object.keys(value).length !== 3) return false;
  const bytes: unknown = Reflect.get(value, "bytes");
  const sha256: unknown = Reflect.get(value, "sha256");
  return (
    isId(Reflect.get(value, "$artifact")) &&
    typeof bytes === "number" &&
    Number.isSafeInteger(bytes) &&
    bytes >= 0 &&
    typeof sha256 === "string" &&
    SHA256.test(sha256)
  );
}

/**
 * What an event may hold of a value: the value itself, or the reference of the object that it
 * was put into when its JSON takes more than `limit` bytes. Rejects like `ObjectStore.put`.
 */
export async function offload(
  objects: Pick<ObjectStore, "put">,
  ref: SessionRef,
  value: unknown,
  limit: number = MAX_INLINE_BYTES,
): Promise<unknown> {
  const json: string | undefined = JSON.stringify(value);
  // In UTF-8 a code unit takes one to three bytes: most values need not be encoded to be judged.
  if (json === undefined || json.length * 3 <= limit) return value;
  const bytes = Buffer.from(json);
  if (bytes.byteLength <= limit) return value;
  return objects.put(ref, bytes, "application/json");
}

/**
 * The whole value behind what an event holds. Only a reference at the top is followed, within
 * its session. NATS away is waited for, 20 s. Rejects with ObjectGone when the object is not
 * stored or is not what the reference says, with LogCorrupt when it is not JSON, or with
 * BrokerUnavailable.
 */
export async function resolve(
  objects: Pick<ObjectStore, "get">,
  ref: SessionRef,
  value: unknown,
): Promise<unknown> {
  if (!isArtifactRef(value)) return value;
  const id = value.$artifact;
  const found = await getPatiently(objects, ref, id);
  if (!found) throw new ObjectGone(`object ${id} of ${ref.session} is not stored`);
  if (createHash("sha256").update(found).digest("hex") !== value.sha256) {
    throw new ObjectGone(`object ${id} of ${ref.session} is not what its reference says`);
  }
  try {
    const whole: unknown = JSON.parse(Buffer.from(found).toString("utf8"));
    return whole;
  } catch (cause) {
    throw new LogCorrupt(`object ${id} of ${ref.session} is not JSON`, { cause });
  }
}

async function getPatiently(
  objects: Pick<ObjectStore, "get">,
  ref: SessionRef,
  id: string,
): Promise<Uint8Array | undefined> {
  const giveUpAt = Date.now() + PATIENCE_MS;
  for (;;) {
    try {
      return await objects.get(ref, id);
    } catch (error) {
      if (!(error instanceof BrokerUnavailable) || Date.now() >= giveUpAt) throw error;
      await new Promise((retry) => setTimeout(retry, RETRY_MS));
    }
  }
}
