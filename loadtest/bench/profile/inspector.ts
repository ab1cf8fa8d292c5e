/** The edge's own profiler, over its inspector port (Chrome DevTools Protocol). */
import { openSocket } from "../websocket/socket.ts";
import type { CpuProfile } from "./self-times.ts";

interface Reply {
  readonly id?: number;
  readonly result?: unknown;
  readonly error?: { readonly message: string };
}

export interface Inspector {
  /** Samples the process while `work` runs. */
  profile(work: () => Promise<unknown>): Promise<CpuProfile>;
  close(): void;
}

const SAMPLE_MICROS = 200;

export async function openInspector(port: number): Promise<Inspector> {
  const answer = await fetch(`http://127.0.0.1:${port}/json/list`);
  const [first] = (await answer.json()) as { webSocketDebuggerUrl: string }[];
  if (first === undefined) throw new Error("the edge's inspector lists no target");
  const { call, close } = await dial(port, new URL(first.webSocketDebuggerUrl).pathname);
  await call("Profiler.enable");
  await call("Profiler.setSamplingInterval", { interval: SAMPLE_MICROS });
  return {
    profile: async (work) => {
      await call("Profiler.start");
      await work();
      const { profile } = (await call("Profiler.stop")) as { profile: CpuProfile };
      return profile;
    },
    close,
  };
}

type Call = (method: string, params?: object) => Promise<unknown>;

function dial(port: number, path: string): Promise<{ call: Call; close: () => void }> {
  return new Promise((resolve, reject) => {
    const waiting = new Map<number, (reply: Reply) => void>();
    let asked = 0;
    openSocket(
      { host: "127.0.0.1", port, path, protocols: [], headers: {} },
      {
        opened: (socket) => {
          const call: Call = (method, params = {}) =>
            new Promise((done, failed) => {
              const id = ++asked;
              waiting.set(id, ({ result, error }) => {
                if (error) failed(new Error(`${method}: ${error.message}`));
                else done(result);
              });
              socket.send(JSON.stringify({ id, method, params }));
            });
          resolve({ call, close: () => socket.destroy() });
        },
        text: (data, start, end) => {
          const reply = JSON.parse(data.toString("utf8", start, end)) as Reply;
          if (reply.id === undefined) return;
          waiting.get(reply.id)?.(reply);
          waiting.delete(reply.id);
        },
        closed: (error) => {
          reject(error);
          for (const done of waiting.values()) done({ error: { message: error.message } });
        },
      },
    );
  });
}
