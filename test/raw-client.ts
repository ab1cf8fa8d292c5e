import { eventually } from "@throughline/testkit";
import { WebSocket } from "ws";

/** A frame as it came; tests read the fields they need. */
export interface Frame {
  readonly type: string;
  readonly id?: string;
  readonly code?: string;
  readonly session_id?: string;
  readonly run_id?: string;
  readonly seq?: number;
  readonly cursor?: string;
  readonly step_id?: string;
  readonly attempt?: number;
  readonly subscription_id?: string;
  readonly recovered?: boolean;
  readonly reason?: string;
  readonly duplicate?: boolean;
  readonly payload?: Readonly<Record<string, unknown>>;
  readonly [field: string]: unknown;
}

/** A WebSocket that speaks the protocol and hides nothing: no reconnect, no dedupe, every frame kept. */
export class RawClient {
  readonly frames: Frame[] = [];
  readonly #socket: WebSocket;
  #next = 0;
  #listener: ((frame: Frame) => void) | undefined;
  closed: { code: number; reason: string } | undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data: Buffer) => {
      const frame: Frame = JSON.parse(data.toString("utf8"));
      this.frames.push(frame);
      this.#listener?.(frame);
    });
    socket.on("close", (code, reason) => {
      this.closed = { code, reason: reason.toString("utf8") };
    });
    socket.on("error", () => undefined);
  }

  /** Connects and waits for `welcome`. */
  static async connect(connectUrl: string, user = "ann", tenant = "acme"): Promise<RawClient> {
    const socket = new WebSocket(connectUrl, ["throughline.v1"], {
      headers: { authorization: `Bearer dev.${tenant}.${user}` },
    });
    const client = new RawClient(socket);
    await client.frame((f) => f.type === "welcome");
    return client;
  }

  /** Called with each frame as it comes, for what must happen at once. One listener; the last one given counts. */
  listen(listener: (frame: Frame) => void): void {
    this.#listener = listener;
  }

  /** Sends a command; returns its id. */
  send(command: { type: string; id?: string } & Record<string, unknown>): string {
    const id = command.id ?? `c_${(this.#next += 1)}_${Math.random().toString(36).slice(2, 10)}`;
    this.#socket.send(JSON.stringify({ ...command, id }));
    return id;
  }

  sendText(text: string | Buffer): void {
    this.#socket.send(text);
  }

  /** The first frame that matches, waited for. */
  frame(matches: (frame: Frame) => boolean, timeoutMs = 15_000): Promise<Frame> {
    return eventually(() => this.frames.find(matches), {
      timeoutMs,
      what: () =>
        `a frame; ${this.closed ? `closed with ${this.closed.code}, ` : ""}last were ${JSON.stringify(this.frames.slice(-4)).slice(0, 800)}`,
    });
  }

  /** Sends a command and waits for the frame that answers it. */
  async ask(command: { type: string; id?: string } & Record<string, unknown>): Promise<Frame> {
    const from = this.frames.length;
    const id = this.send(command);
    return eventually(() => this.frames.slice(from).find((f) => f.id === id), {
      what: () => `an answer to ${command.type}`,
    });
  }

  async createSession(id?: string): Promise<string> {
    const answer = await this.ask({
      type: "session.create",
      ...(id === undefined ? {} : { id }),
      payload: {},
    });
    if (answer.session_id === undefined) throw new Error(`no session: ${JSON.stringify(answer)}`);
    return answer.session_id;
  }

  /** Starts a run; returns its id. */
  async start(session: string, agent: string, input: unknown, id?: string): Promise<string> {
    const answer = await this.ask({
      type: "run.start",
      ...(id === undefined ? {} : { id }),
      session_id: session,
      payload: { agent, input },
    });
    if (answer.run_id === undefined) throw new Error(`not started: ${JSON.stringify(answer)}`);
    return answer.run_id;
  }

  subscribe(session: string, run?: string, payload: Record<string, unknown> = {}): Promise<Frame> {
    return this.ask({
      type: "subscribe",
      session_id: session,
      ...(run === undefined ? {} : { run_id: run }),
      payload,
    });
  }

  /** Durable events, of one run where it is named. */
  events(run?: string): Frame[] {
    return this.frames.filter(
      (f) => f.seq !== undefined && (run === undefined || f.run_id === run),
    );
  }

  /** The run's terminal event, waited for. */
  terminal(run: string, timeoutMs = 30_000): Promise<Frame> {
    return this.frame(
      (f) => f.run_id === run && f.seq !== undefined && isTerminal(f.type),
      timeoutMs,
    );
  }

  /** Reads nothing any more, until {@link resume}. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  close(): void {
    this.#socket.close();
  }

  /** Like a pulled cable: no close frame. */
  terminate(): void {
    this.#socket.terminate();
  }
}

export function isTerminal(type: string): boolean {
  return type === "run.completed" || type === "run.failed" || type === "run.cancelled";
}
