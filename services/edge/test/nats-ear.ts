import type { NatsServer } from "@throughline/testkit";
import { eventually } from "@throughline/testkit";
import { connect, type Socket } from "node:net";

/** Hears the subject of everything that is published on a server, whatever part of it, in NATS's own words. */
export class NatsEar {
  readonly subjects: string[] = [];
  readonly #socket: Socket;
  #rest = Buffer.alloc(0);
  #isListening = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (data) => this.#read(data));
    socket.write('CONNECT {"verbose":false,"headers":true}\r\nSUB > 1\r\nPING\r\n');
  }

  static async on(nats: NatsServer): Promise<NatsEar> {
    const ear = new NatsEar(connect(nats.port, "127.0.0.1"));
    await eventually(() => ear.#isListening, { what: "a PONG of the NATS server" });
    return ear;
  }

  close(): void {
    this.#socket.destroy();
  }

  #read(data: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, data]);
    for (;;) {
      const end = this.#rest.indexOf("\r\n");
      if (end === -1) return;
      const words = this.#rest.subarray(0, end).toString("utf8").split(" ");
      const isMessage = words[0] === "MSG" || words[0] === "HMSG";
      const bytes = isMessage ? Number(words.at(-1)) + 2 : 0;
      if (this.#rest.length < end + 2 + bytes) return;
      if (isMessage) this.subjects.push(words[1] ?? "");
      if (words[0] === "PONG") this.#isListening = true;
      if (words[0] === "PING") this.#socket.write("PONG\r\n");
      this.#rest = this.#rest.subarray(end + 2 + bytes);
    }
  }
}
