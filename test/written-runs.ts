/** Runs that the test itself writes, at its own pace, for load to watch. */
import { createClient } from "@throughline/client/node";
import type { Edge } from "@throughline/testkit";
import { BY_HAND, writerOf } from "./hand-worker.ts";
import type { World } from "./world.ts";

export const TOKEN = "dev.acme.ann";

export interface WrittenRuns {
  readonly refs: readonly { readonly session: string; readonly run: string }[];
  /** Of the last event of each run, stored or on its way. */
  seq(): number;
  /** An event to each run; resolves when they are stored. */
  append(value: string | number): Promise<void>;
  /** An event to each run every so often, until `stop`; that resolves, once all are stored, with their seq. */
  write(everyMs: number): { stop(): Promise<number> };
}

/** Starts runs in a session of their own. */
export async function startWrittenRuns(
  world: World,
  edge: Edge,
  count: number,
): Promise<WrittenRuns> {
  const client = createClient({ url: edge.url, token: TOKEN });
  const session = await client.createSession();
  const payload = { agent: BY_HAND, input: null };
  const runs = await Promise.all(
    Array.from({ length: count }, async () => {
      const { run_id: run = "" } = await client.command({
        type: "run.start",
        session_id: session,
        payload,
      });
      return { session, run, writer: await writerOf(world.broker, session, run) };
    }),
  );
  client.close();
  let value = 0;
  const seq = (): number => runs[0]?.writer.seq ?? 0;
  const append = async (content: string | number): Promise<void> => {
    const event = { type: "custom", payload: { name: "n", value: content } } as const;
    await Promise.all(runs.map(({ writer }) => writer.append(event)));
  };
  return {
    seq,
    append,
    refs: runs.map(({ session: of, run }) => ({ session: of, run })),
    write: (everyMs) => {
      const stored: Promise<unknown>[] = [];
      const timer = setInterval(() => {
        value += 1;
        stored.push(append(value));
      }, everyMs);
      return {
        stop: async () => {
          clearInterval(timer);
          await Promise.all(stored);
          return seq();
        },
      };
    },
  };
}
