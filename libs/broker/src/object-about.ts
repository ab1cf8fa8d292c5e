import { LogCorrupt } from "./errors.ts";
import { H } from "./headers.ts";
import type { RawMessage } from "./direct-read.ts";

/** What the message on an object's own subject says of it. */
export interface ObjectAbout {
  readonly bytes: number;
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  readonly media_type: string;
  /** ms since the epoch, by the writer's clock: when its first byte was stored. */
  readonly at: number;
  /** 0: the object is the message's body. */
  readonly chunks: number;
  /** Where the chunks are; "" without. */
  readonly upload: string;
  /** Stream sequence of the first chunk; 0 without. */
  readonly first: number;
}

const MEDIA_TYPE = /^[\x21-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?$/;

/** What may stand in a header, and later in one of HTTP. Throws RangeError. */
export function checkMediaType(text: string): void {
  if (!MEDIA_TYPE.test(text)) {
    throw new RangeError("a media type is 1 to 256 printable ASCII characters");
  }
}

export function aboutFields(about: ObjectAbout): Record<string, string | number> {
  return {
    [H.bytes]: about.bytes,
    [H.sha256]: about.sha256,
    [H.media]: about.media_type,
    [H.at]: about.at,
    [H.chunks]: about.chunks,
    [H.upload]: about.upload,
    [H.first]: about.first,
  };
}

/** Throws LogCorrupt for what no object store wrote. */
export function readAbout(raw: RawMessage): ObjectAbout {
  const about = {
    bytes: whole(raw, H.bytes),
    sha256: raw.headers.get(H.sha256),
    media_type: raw.headers.get(H.media),
    at: whole(raw, H.at),
    chunks: whole(raw, H.chunks),
    upload: raw.headers.get(H.upload),
    first: whole(raw, H.first),
  };
  if (about.chunks === 0 && raw.body.byteLength !== about.bytes) {
    throw new LogCorrupt(`${raw.subject} holds ${raw.body.byteLength} bytes, not ${about.bytes}`);
  }
  return about;
}

function whole(raw: RawMessage, name: string): number {
  const text = raw.headers.get(name);
  const value = Number(text);
  if (text === "" || !Number.isSafeInteger(value) || value < 0) {
    throw new LogCorrupt(`header ${name} of ${raw.subject} is ${JSON.stringify(text)}`);
  }
  return value;
}
