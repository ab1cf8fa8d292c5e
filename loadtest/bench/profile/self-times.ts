/** Which functions a CPU profile found running. Pure. */

/** What V8's profiler gives; a part of it. */
export interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: {
      readonly functionName: string;
      readonly url: string;
      /** From 0. */
      readonly lineNumber: number;
    };
  }[];
  readonly samples: readonly number[];
  /** Microseconds before each sample. */
  readonly timeDeltas: readonly number[];
}

export interface SelfTime {
  readonly where: string;
  /** Of the time that the process was not idle, 0…1. */
  readonly share: number;
}

/** Functions by the time spent in them alone, longest first; native code counts for the function that called it. */
export function selfTimes(profile: CpuProfile): SelfTime[] {
  const places = new Map(profile.nodes.map(({ id, callFrame }) => [id, placeOf(callFrame)]));
  const spent = new Map<string, number>();
  let busy = 0;
  for (const [i, node] of profile.samples.entries()) {
    const place = places.get(node);
    const micros = profile.timeDeltas[i] ?? 0;
    if (place === undefined || place === "(idle)") continue;
    busy += micros;
    spent.set(place, (spent.get(place) ?? 0) + micros);
  }
  return [...spent]
    .map(([where, micros]) => ({ where, share: micros / busy }))
    .sort((a, b) => b.share - a.share);
}

function placeOf(frame: CpuProfile["nodes"][number]["callFrame"]): string {
  const name = frame.functionName || "(anonymous)";
  if (frame.url === "") return name;
  // Without the folder that the checkout happens to lie in.
  const path = /(?:node_modules|libs|services)\/.*$/.exec(frame.url)?.[0] ?? frame.url;
  return `${name} ${path}:${frame.lineNumber + 1}`;
}
