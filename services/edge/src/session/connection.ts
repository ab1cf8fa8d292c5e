import {
  type Command,
  type CommandOf,
  HEARTBEAT_INTERVAL_MS,
  MAX_FRAME_BYTES,
  PROTOCOL_VERSION,
} from "@throughline/protocol";
import { decodeCommand } from "@throughline/protocol/schemas";
import type { Principal } from "../auth/principal.ts";
import { execute, isEffective } from "../commands/execute.ts";
import { answerFrame } from "../commands/outcome.ts";
import { Attachments } from "./attachments.ts";
import { type ConnectionServices, countClose } from "./connection-services.ts";
import { Inflow, type InflowVerdict } from "./inflow.ts";
import { sessionsLost } from "./membership.ts";
import type { ConnectionPort, ConnectionSocket, OutgoingFrame, SendResult } from "./port.ts";
import type { ConnectionState, Effect, Happening, SubscribeRequest } from "./life.ts";
import { Progress } from "./progress.ts";
import { next, OPENED } from "./state.ts";
import { ConnectionSubscriber } from "./subscriber.ts";

/** The shell of one connection: owns its socket, its attachments and its commands on the way. */
export class Connection implements ConnectionPort {
  readonly principal: Principal;
  readonly #services: ConnectionServices;
  readonly #socket: ConnectionSocket;
  readonly #onGone: () => void;
  readonly #attachments: Attachments;
  readonly #progress: Progress = new Progress();
  #state: ConnectionState = OPENED;
  /** Commands are carried out one after the other: an interrupt and what follows it keep their order. */
  #commands: Promise<void> | undefined;
  readonly #inflow: Inflow;
  #heardAt: number;
  #probedAt: number;
  #sentAt: number;
  #membershipAt: number;

  constructor(
    services: ConnectionServices,
    socket: ConnectionSocket,
    principal: Principal,
    onGone: () => void,
  ) {
    this.#services = services;
    this.#onGone = onGone;
    this.#socket = socket;
    this.principal = principal;
    this.#attachments = new Attachments(services.subscribing, principal);
    this.#inflow = new Inflow(services.limits.inflow, services.now());
    this.#heardAt = services.now();
    this.#probedAt = -Infinity;
    this.#sentAt = this.#heardAt;
    this.#membershipAt = this.#heardAt;
  }

  /** Says welcome, and subscribes to what the connect URL asks for, or says what is wrong with that. */
  open(
    connectionId: string,
    request: SubscribeRequest | undefined,
    fault: string | undefined,
  ): void {
    this.send({
      type: "welcome",
      protocol: PROTOCOL_VERSION,
      connection_id: connectionId,
      node: this.#services.nodeId,
      heartbeat_interval_ms: HEARTBEAT_INTERVAL_MS,
      max_frame_bytes: MAX_FRAME_BYTES,
      server_time: this.#services.commands.wallClock(),
    });
    if (fault !== undefined) this.send({ type: "error", code: "invalid", message: fault });
    if (request) this.happen({ kind: "subscribe", request });
  }

  received(text: string, bytes: number): void {
    const verdict = this.#take(bytes);
    if (verdict === undefined) return;
    const decoded = decodeCommand(text);
    if (verdict.kind === "limited") {
      this.#refuse(decoded.ok ? decoded.command : decoded, decoded.ok, verdict.retryAfterMs);
      return;
    }
    if (decoded.ok) {
      this.happen({ kind: "command", command: decoded.command, bytes });
      return;
    }
    this.#services.metrics.unreadable += 1;
    const { ok: _ok, ...frame } = decoded;
    this.happen({ kind: "unreadable", frame });
  }

  refused(reason: "binary" | "too_large", bytes: number): void {
    const verdict = this.#take(bytes);
    if (verdict === undefined) return;
    this.#services.metrics.unreadable += 1;
    if (reason === "too_large") {
      this.happen({
        kind: "close",
        code: 1009,
        reason: `a frame is over ${MAX_FRAME_BYTES} bytes`,
      });
      return;
    }
    if (verdict.kind === "limited") return this.#refuse({}, false, verdict.retryAfterMs);
    const frame = { code: "malformed", message: "frames are text, this one is binary" } as const;
    this.happen({ kind: "unreadable", frame });
  }

  pinged(bytes: number): void {
    this.#take(bytes);
  }

  drained(): void {
    this.#progress.drained(this.#services.now());
    this.#attachments.drained();
  }

  heard(): void {
    this.#heardAt = this.#services.now();
  }

  closed(): void {
    this.happen({ kind: "gone" });
    this.#onGone();
  }

  /** A client that heeds `goaway` closes it by itself. */
  readonly canLeave: boolean = true;

  get isBusy(): boolean {
    return this.#state.phase !== "closed" && this.#state.pending > 0;
  }

  goaway(reconnectAfterMs: number, reason: string): void {
    this.happen({ kind: "goaway", reconnectAfterMs, reason });
  }

  close(code: number, reason: string): void {
    this.happen({ kind: "close", code, reason });
  }

  /** Called every few seconds: heartbeat, silence, being stuck. */
  sweep(now: number): void {
    const { limits } = this.#services;
    const silentFor = now - this.#heardAt;
    if (silentFor > limits.silentMs) {
      this.close(4408, "no word for too long");
      return;
    }
    if (silentFor >= limits.probeMs && this.#probedAt < this.#heardAt) {
      this.#probedAt = now;
      this.#socket.ping();
    }
    // Answers wait in a socket too that nobody reads.
    const waits = this.#attachments.areStuck || this.#socket.buffered() > 0;
    if (this.#progress.stuckFor(now, waits) > limits.stuckMs) {
      this.close(4410, "too slow: come back with the cursor");
      return;
    }
    if (now - this.#membershipAt >= limits.membershipMs) {
      this.#membershipAt = now;
      void this.#checkMembership();
    }
    if (now - Math.max(this.#sentAt, this.#attachments.publishedAt) >= limits.quietMs) {
      this.send({ type: "heartbeat", ts: this.#services.commands.wallClock() });
    }
  }

  send(frame: OutgoingFrame): SendResult {
    return this.sendText(JSON.stringify(frame));
  }

  /** A control frame that is text already. */
  sendText(frame: string): SendResult {
    this.#sentAt = this.#services.now();
    this.#services.metrics.sentControl += 1;
    const result = this.#socket.send(frame);
    if (result === "dropped") this.drop();
    return result;
  }

  happen(happening: Happening): void {
    const { state, effects } = next(this.#state, happening);
    this.#state = state;
    for (const effect of effects) this.#carryOut(effect);
  }

  /** What the client holds is not known any more: no close frame would reach it in time. */
  drop(): void {
    if (this.#state.phase === "closed") return;
    countClose(this.#services.metrics, 4410);
    this.#socket.close();
    this.happen({ kind: "gone" });
  }

  #carryOut(effect: Effect): void {
    switch (effect.do) {
      case "send":
        this.send(effect.frame);
        return;
      case "attach":
        this.#attach(effect.id, effect.request).catch((error: unknown) => this.#mishap(error));
        return;
      case "detach":
        this.#attachments.end(effect.id);
        return;
      case "acknowledge":
        this.#acknowledge(effect.command);
        return;
      case "execute":
        this.#execute(effect.command, effect.bytes);
        return;
      case "close":
        countClose(this.#services.metrics, effect.code);
        this.#socket.end(effect.code, effect.reason);
    }
  }

  /** Undefined: it is not taken at all. */
  #take(bytes: number): Exclude<InflowVerdict, { kind: "flood" }> | undefined {
    if (this.#state.phase === "closed") return undefined;
    this.heard();
    this.#services.metrics.received += 1;
    const verdict = this.#inflow.take(bytes, this.#services.now());
    if (verdict.kind === "taken") return verdict;
    this.#services.metrics.limited += 1;
    if (verdict.kind === "limited") return verdict;
    this.close(4429, "too many frames, although they were refused");
    return undefined;
  }

  #refuse(asked: { readonly id?: string }, isCommand: boolean, retryAfterMs: number): void {
    const { id } = asked;
    const refusal = {
      code: "rate_limited",
      message: "more frames than this connection may send: wait, or it is closed",
      retry_after_ms: retryAfterMs,
    } as const;
    if (isCommand && id !== undefined) this.send({ type: "command.rejected", id, ...refusal });
    else this.send({ type: "error", ...refusal, ...(id === undefined ? {} : { id }) });
  }

  #acknowledge({ id, payload }: CommandOf<"ack">): void {
    const outcome = this.#attachments.acknowledge(payload.subscription_id, payload.cursor);
    // The events have paid for it.
    if (outcome === "freed") this.#inflow.giveBack();
    if (outcome === "freed" || outcome === "behind") return;
    this.send({ type: "error", code: "invalid", message: `payload.cursor: ${outcome}`, id });
  }

  #execute(command: Command, bytes: number): void {
    if (!isEffective(command)) return;
    const run = async (): Promise<void> => {
      const outcome = await execute(this.#services.commands, this.principal, command);
      this.#services.metrics[outcome.ok ? "accepted" : "rejected"] += 1;
      this.happen({ kind: "answered", frame: answerFrame(command, outcome), bytes });
    };
    const mine = this.#commands === undefined ? run() : this.#commands.then(run);
    this.#commands = mine;
    mine
      .then(() => {
        if (this.#commands === mine) this.#commands = undefined;
      })
      .catch((error: unknown) => this.#mishap(error));
  }

  async #attach(id: string, request: SubscribeRequest): Promise<void> {
    // A session that an earlier frame creates is there when this one asks for it.
    await this.#commands;
    const subscriber = new ConnectionSubscriber(this, this.#socket, id, request);
    const isWanted = (): boolean =>
      this.#state.phase !== "closed" && this.#state.subscriptions.has(id);
    for (const happening of await this.#attachments.begin(subscriber, request, isWanted)) {
      this.happen(happening);
    }
    this.happen({ kind: "begun" });
  }

  async #checkMembership(): Promise<void> {
    if (this.#state.phase === "closed") return;
    const followed = [...this.#state.subscriptions.values()].map(({ session }) => session);
    const { sessions } = this.#services.subscribing;
    const lost = await sessionsLost(sessions, this.principal, followed);
    this.#endAll(lost);
  }

  #endAll(lost: ReadonlySet<string>): void {
    if (this.#state.phase === "closed") return;
    for (const [id, { session }] of this.#state.subscriptions) {
      if (lost.has(session)) this.happen({ kind: "ended", id, reason: "membership" });
    }
  }

  /** A fault of ours: this client starts afresh, and nobody else is touched. */
  #mishap(error: unknown): void {
    const { log } = this.#services.commands;
    log.error({ err: error }, "a connection's command could not be carried out");
    this.close(1013, "the node could not do this");
  }
}
