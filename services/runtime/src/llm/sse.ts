/** Server-sent events out of the bytes of a body, wherever the network has cut them. */

/** A chunk is some hundred bytes, a whole tool call in one some KiB. Longer is no chat completion. */
const MAX_EVENT = 4 * 1024 * 1024;

export interface SseEvent {
  /** The `event:` field; most providers send none. */
  readonly event: string | undefined;
  readonly data: string;
}

export interface SseReader {
  /** The events that these bytes complete. Throws RangeError where one does not end. */
  push(bytes: Uint8Array): SseEvent[];
  /** What stands at the end of a body that was not closed by an empty line: whole, or cut within. */
  end(): SseEvent | undefined;
}

/** Lines end with LF, CRLF or CR; comments and unknown fields are passed over. */
export function openSse(): SseReader {
  // Keeps the bytes of a character that is not whole yet, and drops a byte order mark.
  const decoder = new TextDecoder();
  let rest = "";
  /** The last line ended with a CR at the end of a push: an LF that follows belongs to it. */
  let afterCr = false;
  let event: string | undefined;
  let data: string[] = [];
  let held = 0;

  const dispatch = (): SseEvent | undefined => {
    const whole = data.length > 0 ? { event, data: data.join("\n") } : undefined;
    event = undefined;
    data = [];
    held = 0;
    return whole;
  };

  /** An event where the line is the empty one that ends it. */
  const line = (text: string): SseEvent | undefined => {
    if (text === "") return dispatch();
    const colon = text.indexOf(":");
    const field = colon === -1 ? text : text.slice(0, colon);
    const value = colon === -1 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (field === "data") {
      data.push(value);
      held += value.length;
      if (held > MAX_EVENT) throw tooLong();
    } else if (field === "event") event = value;
    return undefined;
  };

  const lines = (text: string): SseEvent[] => {
    const events: SseEvent[] = [];
    const ends = /\r\n|\n|\r/g;
    // What was looked at before holds no line's end.
    ends.lastIndex = rest.length;
    const all = rest + text;
    let from = 0;
    for (let end = ends.exec(all); end !== null; end = ends.exec(all)) {
      const whole = line(all.slice(from, end.index));
      if (whole) events.push(whole);
      from = ends.lastIndex;
    }
    afterCr = all.endsWith("\r");
    rest = all.slice(from);
    if (rest.length > MAX_EVENT) throw tooLong();
    return events;
  };

  return {
    push(bytes) {
      let text = decoder.decode(bytes, { stream: true });
      if (text === "") return [];
      if (afterCr && text.startsWith("\n")) text = text.slice(1);
      afterCr = false;
      return lines(text);
    },
    end() {
      rest += decoder.decode();
      if (rest !== "") line(rest);
      rest = "";
      return dispatch();
    },
  };
}

function tooLong(): RangeError {
  return new RangeError(`an event of the stream is longer than ${MAX_EVENT} characters`);
}
