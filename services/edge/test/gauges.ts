import { type Edge, freePort, startEdge } from "@throughline/testkit";
import { once } from "node:events";
import { WebSocket } from "ws";

/** What the process's metrics say now; NaN where there is no such series, or it has several. */
export async function gauge(edge: Edge, name: string): Promise<number> {
  const text = await (await fetch(`${edge.adminUrl}/metrics`)).text();
  return Number(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, "m").exec(text)?.[1]);
}

/** RSS in whole MB. */
export async function residentMb(edge: Edge): Promise<number> {
  return Math.round((await gauge(edge, "process_resident_memory_bytes")) / 2 ** 20);
}

/** An edge of which one can say what it holds, and not only what it has not got round to let go of. */
export interface InspectedEdge {
  readonly edge: Edge;
  /** MB of the heap after a full collection. */
  readonly heldMb: () => Promise<number>;
}

/** Started under Node's inspector, which collects garbage when it is told to. */
export async function startInspectedEdge(
  natsUrl: string,
  env: Record<string, string>,
): Promise<InspectedEdge> {
  const port = await freePort();
  const node = [process.execPath, `--inspect=127.0.0.1:${port}`] as const;
  const edge = await startEdge({ natsUrl, env, node });
  const targets: readonly { readonly webSocketDebuggerUrl: string }[] = JSON.parse(
    await (await fetch(`http://127.0.0.1:${port}/json/list`)).text(),
  );
  const inspector = new WebSocket(targets[0]?.webSocketDebuggerUrl ?? "");
  await once(inspector, "open");
  void edge.exited.then(() => inspector.terminate());
  return {
    edge,
    heldMb: async () => {
      inspector.send('{"id":1,"method":"HeapProfiler.collectGarbage"}');
      await once(inspector, "message");
      return (await gauge(edge, "nodejs_heap_size_used_bytes")) / 2 ** 20;
    },
  };
}
