import { createInbox, type Msg, type NatsConnection, type Subscription } from "@nats-io/nats-core";
import { BrokerUnavailable } from "./errors.ts";
import { type HeaderFields, HeaderText } from "./header-text.ts";

/** A stored message as a read hands it over: its own subject and stream sequence, not the reply's. */
export interface RawMessage {
  readonly subject: string;
  readonly streamSeq: number;
  readonly headers: HeaderFields;
  readonly body: Uint8Array;
}

/** Body of `$JS.API.DIRECT.GET.<stream>` (ADR-31). */
export type DirectQuery =
  | { readonly seq: number }
  | { readonly last_by_subj: string }
  | {
      readonly seq: number;
      readonly next_by_subj: string;
      readonly batch: number;
      readonly max_bytes: number;
    }
  | { readonly multi_last: readonly string[]; readonly batch: number };

export interface DirectAnswer {
  readonly messages: readonly RawMessage[];
  /** Matching messages that the replica held behind the last one. */
  readonly pending: number;
}

/** More subjects match a `multi_last` than the server names in one answer (1,024). */
export class TooManyResults extends BrokerUnavailable {}

/** No replica said anything, or one stopped in the middle: the leader may know, and another replica too. */
export class NotAnswered extends BrokerUnavailable {}

const TOO_MANY = 413;

interface Collector {
  readonly batch: boolean;
  readonly messages: RawMessage[];
  readonly resolve: (answer: DirectAnswer) => void;
  readonly reject: (error: Error) => void;
  /** Restarted by every message: a batch may be long, silence may not. */
  timer: NodeJS.Timeout;
}

/** Silence after which a read is given up, in ms. A replica answers in well under one. */
const SILENCE_MS = 2_000;

/**
 * Reads of stored messages, served by any replica. A batch is whole only with its end marker
 * (204 EOB, or 404 for nothing): the client library's `requestMany` just ends when it is cut
 * off (1,674 of 20,000 messages, no error), so this reader is our own.
 *
 * Rejects with BrokerUnavailable when the answer does not come whole: nothing is to be concluded.
 */
export class DirectReader {
  readonly #nc: NatsConnection;
  readonly #inbox: string;
  readonly #replies: Subscription;
  readonly #collectors: Map<string, Collector> = new Map();
  #next = 0;
  #away = false;

  constructor(nc: NatsConnection) {
    this.#nc = nc;
    // One wildcard for all reads: its interest is known all over the cluster before the first of them.
    this.#inbox = createInbox();
    this.#replies = nc.subscribe(`${this.#inbox}.*`, {
      callback: (error, message) => {
        if (error === null) this.#take(message);
      },
    });
  }

  read(stream: string, query: DirectQuery): Promise<DirectAnswer> {
    if (this.#away) return Promise.reject(new BrokerUnavailable("NATS is not connected"));
    return new Promise((resolve, reject) => {
      const token = String((this.#next += 1));
      const timer = setTimeout(() => {
        this.#collectors.delete(token);
        reject(new NotAnswered(`a read of ${stream} was cut off or not answered`));
      }, SILENCE_MS);
      const batch = "batch" in query;
      this.#collectors.set(token, { batch, messages: [], resolve, reject, timer });
      try {
        this.#nc.publish(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(query), {
          reply: `${this.#inbox}.${token}`,
        });
      } catch (error) {
        this.#drop(token);
        reject(new BrokerUnavailable("the NATS connection is closed", { cause: error }));
      }
    });
  }

  /** Answers on the way are lost with the connection, and questions get none: both fail now, not at their time-out. */
  away(reason: string): void {
    this.#away = true;
    for (const [token, collector] of [...this.#collectors]) {
      this.#drop(token);
      collector.reject(new BrokerUnavailable(reason));
    }
  }

  back(): void {
    this.#away = false;
  }

  close(): void {
    this.#replies.unsubscribe();
    this.away("the broker was closed");
  }

  #drop(token: string): void {
    const collector = this.#collectors.get(token);
    if (collector) clearTimeout(collector.timer);
    this.#collectors.delete(token);
  }

  #take(message: Msg): void {
    const token = message.subject.slice(this.#inbox.length + 1);
    const collector = this.#collectors.get(token);
    if (!collector) return;
    const headers = HeaderText.of(message);
    const { status } = headers;
    if (status === 0 && !headers.isEmpty) {
      collector.messages.push({
        subject: headers.get("Nats-Subject"),
        streamSeq: Number(headers.get("Nats-Sequence")),
        headers,
        body: message.data,
      });
      if (collector.batch) {
        collector.timer.refresh();
        return;
      }
    }
    this.#drop(token);
    if (status === 0 || status === 204 || status === 404) {
      const pending = Number(headers.get("Nats-Num-Pending")) || 0;
      collector.resolve({ messages: collector.messages, pending });
      return;
    }
    if (status === TOO_MANY) {
      collector.reject(new TooManyResults("a read was refused: too many subjects match"));
      return;
    }
    const what = status === 503 ? "no replica answers" : `${status} ${headers.description}`;
    collector.reject(new BrokerUnavailable(`a read was refused: ${what}`));
  }
}
