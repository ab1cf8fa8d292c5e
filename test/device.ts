import { eventually } from "@throughline/testkit";
import { type Frame, RawClient } from "./raw-client.ts";

export type DeviceCommand = { type: string; id: string } & Record<string, unknown>;

/**
 * One device of a user, over all its connections: it follows a session, comes back with its cursor
 * wherever it is told to, and sends a command again, under its id, until it has an answer. What it was
 * shown is kept connection after connection, so that a hole or a repetition at the seam is seen.
 */
export class Device {
  readonly user: string;
  readonly #session: string;
  /** Everything it was sent, but for what `recovered` connections brought before. */
  readonly frames: Frame[] = [];
  #client: RawClient | undefined;
  #cursor: string | undefined;
  #taken = 0;
  #connects = 0;

  private constructor(session: string, user: string) {
    this.#session = session;
    this.user = user;
  }

  static async open(connectUrl: string, session: string, user = "ann"): Promise<Device> {
    const device = new Device(session, user);
    await device.connect(connectUrl);
    return device;
  }

  get connects(): number {
    return this.#connects;
  }

  /** Drops the connection it has, like a pulled cable, and goes on at an edge from its cursor. */
  async connect(connectUrl: string): Promise<void> {
    this.#collect();
    this.#client?.terminate();
    const client = await RawClient.connect(connectUrl, this.user);
    this.#client = client;
    this.#taken = 0;
    this.#connects += 1;
    const answer = await client.subscribe(
      this.#session,
      undefined,
      this.#cursor === undefined ? {} : { cursor: this.#cursor },
    );
    if (answer.type !== "subscribed" || answer.recovered !== true)
      throw new Error(`not recovered: ${JSON.stringify(answer)}`);
    this.#cursor ??= answer.cursor;
  }

  /** Durable events, in the order in which they came. */
  events(run?: string): Frame[] {
    this.#collect();
    return this.frames.filter(
      (f) => f.seq !== undefined && (run === undefined || f.run_id === run),
    );
  }

  event(matches: (frame: Frame) => boolean, timeoutMs = 15_000): Promise<Frame> {
    return eventually(() => this.events().find(matches), {
      timeoutMs,
      what: () => `an event; last were ${JSON.stringify(this.events().slice(-4)).slice(0, 800)}`,
    });
  }

  /** Puts it on the wire, and does not wait. */
  send(command: DeviceCommand): void {
    this.#client?.send(command);
  }

  /** The edge's answer; the command is sent again where the connection went before it came. */
  async ask(command: DeviceCommand): Promise<Frame> {
    for (;;) {
      const client = this.#client;
      if (client === undefined) throw new Error("the device is closed");
      const from = client.frames.length;
      client.send(command);
      const answer = await eventually(
        () =>
          client.frames.slice(from).find((f) => f.seq === undefined && f.id === command.id) ??
          (client.closed || this.#client !== client ? "gone" : undefined),
        { what: `an answer to ${command.type}` },
      );
      if (answer !== "gone") return answer;
      await eventually(() => this.#client !== client, { what: "a new connection" });
    }
  }

  close(): void {
    this.#collect();
    this.#client?.terminate();
    this.#client = undefined;
  }

  #collect(): void {
    const fresh = this.#client?.frames.slice(this.#taken) ?? [];
    this.#taken += fresh.length;
    this.frames.push(...fresh);
    this.#cursor = fresh.findLast((f) => f.seq !== undefined)?.cursor ?? this.#cursor;
  }
}
