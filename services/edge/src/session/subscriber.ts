import type { Subscriber } from "../fanout/place.ts";
import { type RunSnapshot, snapshotFrame } from "../fanout/run-snapshot.ts";
import type { Connection } from "./connection.ts";
import type { SubscribeRequest } from "./life.ts";
import type { OutgoingFrame, SendResult, Socket } from "./port.ts";

/** A subscription of a connection, as its attachment knows it. */
export class ConnectionSubscriber implements Subscriber {
  readonly #connection: Connection;
  readonly socket: Socket;
  readonly subscriptionId: string;
  readonly wantsDeltas: boolean;
  readonly window: number | undefined;
  readonly #session: string;

  constructor(
    connection: Connection,
    socket: Socket,
    subscriptionId: string,
    request: Pick<SubscribeRequest, "session" | "deltas" | "window">,
  ) {
    this.#connection = connection;
    this.socket = socket;
    this.subscriptionId = subscriptionId;
    this.wantsDeltas = request.deltas;
    this.window = request.window;
    this.#session = request.session;
  }

  send(frame: OutgoingFrame): SendResult {
    return this.#connection.send(frame);
  }

  sendSnapshot(snapshot: RunSnapshot): { result: SendResult; bytes: number } {
    const text = snapshotFrame(this.#session, this.subscriptionId, snapshot);
    return { result: this.#connection.sendText(text), bytes: text.length };
  }

  runEnded(): void {
    this.#connection.happen({ kind: "ended", id: this.subscriptionId, reason: "run_ended" });
  }

  broken(why: "dropped" | "hole" | "missed_too_much"): void {
    if (why === "dropped") this.#connection.drop();
    else this.#connection.close(4410, "the log moved on: come back with the cursor");
  }

  lost(): void {
    this.#connection.close(1013, "the event log cannot be followed now");
  }
}
