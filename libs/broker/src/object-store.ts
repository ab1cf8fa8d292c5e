import { createHash } from "node:crypto";
import { isId } from "@throughline/protocol";
import type { Broker } from "./broker.ts";
import { compareAndSet, heldValue, type NewValue, type Place } from "./compare-and-set.ts";
import type { DirectReader, RawMessage } from "./direct-read.ts";
import { BrokerUnavailable, LogCorrupt } from "./errors.ts";
import type { SessionRef } from "./ids.ts";
import { readLast } from "./last-read.ts";
import { leaderRead } from "./leader-read.ts";
import { aboutFields, checkMediaType, type ObjectAbout, readAbout } from "./object-about.ts";
import { readChunks } from "./object-chunks.ts";
import { CHUNK_BYTES, newUpload, Upload } from "./object-upload.ts";
import { objectReuseMs } from "./retention.ts";
import { objectSubject, streamName } from "./subjects.ts";

/** What stands in an event in place of a large value (PROTOCOL.md). */
export interface ArtifactRef {
  readonly $artifact: string;
  readonly bytes: number;
  /** 64 lower-case hex digits. */
  readonly sha256: string;
}

export interface ObjectStat {
  readonly bytes: number;
  readonly sha256: string;
  readonly media_type: string;
}

export type ObjectStoreBroker = Pick<Broker, "nc" | "jsm" | "shardOf" | "historyMaxAgeMs"> & {
  readonly reader: Pick<DirectReader, "read">;
};

interface Content {
  readonly bytes: Uint8Array;
  readonly sha256: string;
  readonly media_type: string;
}

/**
 * Bytes too large for an event, by session. An object is one message that says what it is, with
 * the bytes in it where they fit, else chunks stored before it: what is found is whole.
 */
export class ObjectStore {
  readonly #broker: ObjectStoreBroker;
  readonly #reuseMs: number;

  constructor(broker: ObjectStoreBroker) {
    this.#broker = broker;
    this.#reuseMs = objectReuseMs(broker.historyMaxAgeMs);
  }

  /**
   * Stores bytes under an id made of their hash, so that the same bytes are one object of the
   * session: the first media type stays. Kept for `historyMaxAgeMs` from now at least.
   * Resolves once stored. Rejects with BrokerUnavailable after 20 s without NATS.
   */
  async put(
    ref: SessionRef,
    bytes: Uint8Array,
    media_type = "application/octet-stream",
  ): Promise<ArtifactRef> {
    const sha256 = hexHash(bytes);
    return this.putAs(ref, `art_${sha256.slice(0, 32)}`, { bytes, sha256, media_type });
  }

  /** @internal Under an id of the caller's, who may replace it and remove it. */
  async putAs(ref: SessionRef, id: string, content: Content): Promise<ArtifactRef> {
    checkMediaType(content.media_type);
    const { nc } = this.#broker;
    const at = Date.now();
    const { bytes, sha256 } = content;
    let made: { value: NewValue; upload: string } | undefined;
    const swap = await compareAndSet(nc, this.#about(ref, id), async (raw) => {
      if (raw && this.#serves(readAbout(raw), sha256)) return undefined;
      made ??= await this.#make(ref, content, at);
      return made.value;
    });
    // Another writer of the same bytes was faster: its chunks count, and ours nobody will read.
    const others = swap.kind === "kept" && swap.held && readAbout(swap.held).upload;
    if (made?.upload && others !== false && others !== made.upload) {
      await this.#purge(this.#chunks(ref, made.upload));
    }
    return { $artifact: id, bytes: bytes.byteLength, sha256 };
  }

  /** The whole object; undefined once the leader has said that it is not there. Checked by its hash. */
  async get(ref: SessionRef, id: string): Promise<Uint8Array | undefined> {
    const near = await readLast(this.#broker, this.#about(ref, id));
    if (!near) return undefined;
    const bytes = await this.#whole(ref, near);
    if (bytes) return bytes;
    // A replica's older word names chunks that were replaced since: the leader has the last.
    const { stream, subject } = this.#about(ref, id);
    const raw = heldValue(await leaderRead(this.#broker.nc, stream, { last_by_subj: subject }));
    return raw && this.#whole(ref, raw);
  }

  async stat(ref: SessionRef, id: string): Promise<ObjectStat | undefined> {
    const raw = await readLast(this.#broker, this.#about(ref, id));
    if (!raw) return undefined;
    const { bytes, sha256, media_type } = readAbout(raw);
    return { bytes, sha256, media_type };
  }

  /** @internal For ids of `putAs` only: what `put` stored may be somebody else's too. */
  async remove(ref: SessionRef, id: string): Promise<void> {
    const place = this.#about(ref, id);
    const raw = await leaderRead(this.#broker.nc, place.stream, { last_by_subj: place.subject });
    if (!raw) return;
    await this.#purge(place);
    const { upload } = readAbout(raw);
    if (upload !== "") await this.#purge(this.#chunks(ref, upload));
  }

  /** The same bytes, and young enough that a promise made now holds. */
  #serves(about: ObjectAbout, sha256: string): boolean {
    return about.sha256 === sha256 && Math.abs(Date.now() - about.at) < this.#reuseMs;
  }

  async #make(
    ref: SessionRef,
    content: Content,
    at: number,
  ): Promise<{ value: NewValue; upload: string }> {
    const { bytes, sha256, media_type } = content;
    const about = { bytes: bytes.byteLength, sha256, media_type, at };
    if (bytes.byteLength <= CHUNK_BYTES) {
      const fields = aboutFields({ ...about, chunks: 0, upload: "", first: 0 });
      return { value: { body: bytes, fields }, upload: "" };
    }
    const name = newUpload();
    const upload = new Upload(this.#broker.nc, this.#chunks(ref, name));
    for (let from = 0; from < bytes.byteLength; from += CHUNK_BYTES) {
      await upload.append(bytes.subarray(from, from + CHUNK_BYTES));
    }
    const { first, chunks } = upload;
    const fields = aboutFields({ ...about, chunks, upload: name, first });
    return { value: { body: new Uint8Array(), fields }, upload: name };
  }

  async #whole(ref: SessionRef, raw: RawMessage): Promise<Uint8Array | undefined> {
    const about = readAbout(raw);
    const bytes = about.chunks === 0 ? raw.body : await this.#join(ref, about);
    if (bytes && hexHash(bytes) !== about.sha256) {
      throw new LogCorrupt(`what ${raw.subject} names has another hash`);
    }
    return bytes;
  }

  async #join(ref: SessionRef, about: ObjectAbout): Promise<Uint8Array | undefined> {
    const parts: Uint8Array[] = [];
    const chunks = readChunks(this.#broker, this.#chunks(ref, about.upload), about);
    for (;;) {
      const { done, value } = await chunks.next();
      if (!done) parts.push(value);
      else return value === "whole" ? Buffer.concat(parts) : undefined;
    }
  }

  async #purge(place: Place): Promise<void> {
    try {
      await this.#broker.jsm.streams.purge(place.stream, { filter: place.subject });
    } catch (cause) {
      throw new BrokerUnavailable(`${place.subject} could not be removed`, { cause });
    }
  }

  #about(ref: SessionRef, id: string): Place {
    const shard = this.#shard(ref, id);
    return { stream: streamName.objects(shard), subject: objectSubject.about(ref, shard, id) };
  }

  #chunks(ref: SessionRef, upload: string): Place {
    const shard = this.#shard(ref, upload);
    return { stream: streamName.objects(shard), subject: objectSubject.chunks(ref, shard, upload) };
  }

  #shard(ref: SessionRef, id: string): number {
    // Checked where they become a subject; a wildcard here would read a stranger's object.
    if (!isId(ref.tenant) || !isId(ref.session) || !isId(id)) {
      throw new RangeError(
        "tenant, session and object must be ids before they are part of a subject",
      );
    }
    return this.#broker.shardOf(ref.session);
  }
}

function hexHash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
