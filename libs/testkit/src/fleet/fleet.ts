/** Many viewers of runs, in processes of their own. */
import { type Role, startRole } from "../role.ts";
import type { Return, ViewerReport } from "./record.ts";
import type { MemberMethods, Transport, Viewers } from "./watch.ts";

export interface Fleet {
  /** Opens viewers, spread over the processes; resolves when all of them are level with the log. */
  watch(viewers: Viewers): Promise<void>;
  /** Resolves when all viewers are level and have seen this event; how many have not after that time. */
  reached(seq: number, timeoutMs: number): Promise<number>;
  reports(): Promise<(ViewerReport & { readonly transport: Transport })[]>;
  dispose(): void;
}

// From dist, whoever asks: a forked process has no test runner to strip types.
const MEMBER = new URL("../../dist/fleet/member.js", import.meta.url);

export function startFleet(processes: number): Fleet {
  const members: Role<MemberMethods>[] = Array.from({ length: processes }, (_, i) =>
    startRole<MemberMethods>(MEMBER, `fleet ${i + 1}`),
  );
  return {
    watch: async (viewers) => {
      const share = (i: number): number =>
        Math.floor(((i + 1) * viewers.count) / processes) -
        Math.floor((i * viewers.count) / processes);
      await Promise.all(
        members.map((member, i) => member.ask("watch", { ...viewers, count: share(i) })),
      );
    },
    reached: async (seq, timeoutMs) => {
      const behind = await Promise.all(
        members.map((member) => member.ask("reached", { seq, timeoutMs })),
      );
      return behind.reduce((sum, count) => sum + count, 0);
    },
    reports: async () =>
      (await Promise.all(members.map((member) => member.ask("reports", {})))).flat(),
    dispose: () => {
      for (const member of members) member.stop();
    },
  };
}

export type { Return, ViewerReport };
