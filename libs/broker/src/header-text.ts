import { type Msg, MsgImpl } from "@nats-io/nats-core/internal";

/** What a reader of headers needs; the client library's MsgHdrs is one too. */
export interface HeaderFields {
  /** The first value of a field; "" where there is none. */
  get(name: string): string;
}

const VERSION = "NATS/1.0";

/**
 * A header block as it came, searched instead of decoded: the library's own decoder builds a map
 * of arrays (7 µs for the thirteen fields of a live copy, as much as the write to a socket that
 * follows), a search for what is needed takes a tenth of that.
 */
export class HeaderText implements HeaderFields {
  readonly #text: string;

  /** @param text the block from `NATS/1.0` to the empty line (ADR-4) */
  constructor(text: string) {
    this.#text = text;
  }

  static of(message: Msg): HeaderText {
    if (message instanceof MsgImpl) {
      const { buffer, byteOffset } = message._rdata;
      const bytes = message._msg.hdr;
      return new HeaderText(
        bytes > 0 ? Buffer.from(buffer, byteOffset, bytes).toString("latin1") : "",
      );
    }
    throw new TypeError("a message of another client library");
  }

  get(name: string): string {
    const field = `\r\n${name}:`;
    const at = this.#text.indexOf(field);
    if (at < 0) return "";
    const from = at + field.length;
    return this.#text.slice(from, this.#text.indexOf("\r\n", from)).trim();
  }

  get isEmpty(): boolean {
    return this.#text === "";
  }

  /** Status of a reply without content (`NATS/1.0 404 Message Not Found`); 0 for a message. */
  get status(): number {
    return Number.parseInt(this.#text.slice(VERSION.length, VERSION.length + 4), 10) || 0;
  }

  get description(): string {
    return this.#text.slice(VERSION.length + 5, this.#text.indexOf("\r\n")).trim();
  }
}
