import type { Edge } from "@throughline/testkit";

/** What the process's metrics say now; NaN where there is no such series, or it has several. */
export async function gauge(edge: Edge, name: string): Promise<number> {
  const text = await (await fetch(`${edge.adminUrl}/metrics`)).text();
  return Number(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, "m").exec(text)?.[1]);
}

/** RSS in whole MB. */
export async function residentMb(edge: Edge): Promise<number> {
  return Math.round((await gauge(edge, "process_resident_memory_bytes")) / 2 ** 20);
}
