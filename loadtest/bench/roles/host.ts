/** Role: a worker process, made with the worker SDK, and the other end of bare NATS requests. */
import { type NatsConnection, connect as connectNats } from "@nats-io/transport-node";
import { openBroker } from "@throughline/broker";
import { createWorker, defineAgent, type RunContext } from "@throughline/worker";
import { setTimeout as delay } from "node:timers/promises";
import { serve } from "@throughline/testkit";
import { type BareSubjects, IDLE, TICKING } from "./names.ts";

export type HostMethods = {
  /** Gives the worker's id, as it stands in `run.started`. */
  readonly open: (q: { natsUrl: string; ackWaitMs: number }) => Promise<string>;
  readonly answerBare: (q: { natsUrl: string; bare: BareSubjects }) => Promise<void>;
};

const TICK_MS = 10;
const EVER_MS = 3_600_000;

const agents = [
  defineAgent({
    name: IDLE,
    run: (ctx: RunContext) => delay(EVER_MS, null, { signal: ctx.signal }),
  }),
  defineAgent({
    name: TICKING,
    run: async (ctx: RunContext) => {
      // Not ended when its worker dies, it begins anew with the next: at once, however long it had become.
      const message = ctx.message();
      for (;;) {
        await message.write("tick ");
        await delay(TICK_MS, undefined, { signal: ctx.signal });
      }
    },
  }),
];

const methods: HostMethods = {
  open: async ({ natsUrl, ackWaitMs }) => {
    const broker = await openBroker({ servers: [natsUrl], name: "bench host" });
    const worker = createWorker({ broker, agents, name: "bench", ackWaitMs });
    await worker.start();
    return worker.id;
  },

  answerBare: async ({ natsUrl, bare }) => {
    const nats: NatsConnection = await connectNats({ servers: natsUrl, name: "bench answerer" });
    nats.subscribe(bare.request, {
      callback: (_, message) => {
        message.respond(message.data);
      },
    });
    const stream = { name: "BENCH", subjects: [bare.stored], storage: "file", num_replicas: 1 };
    await nats.request("$JS.API.STREAM.CREATE.BENCH", JSON.stringify(stream), { timeout: 5_000 });
    await nats.flush();
  },
};

serve(methods);
