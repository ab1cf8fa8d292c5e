/** One process of a fleet. */
import { eventually } from "../eventually.ts";
import { serve } from "../role.ts";
import type { ViewerRecord } from "./record.ts";
import { watchBySocket } from "./socket-viewer.ts";
import { StreamViewer } from "./stream-viewer.ts";
import type { MemberMethods, Transport, Viewers } from "./watch.ts";

/** Connects under way: a test is about the storm that comes later, not about this one. */
const AT_ONCE = 64;
const OPEN_MS = 60_000;

const viewers: { readonly transport: Transport; readonly record: ViewerRecord }[] = [];

const methods: MemberMethods = {
  watch: async (wanted) => {
    for (let left = wanted.count; left > 0; left -= AT_ONCE) {
      const opened = Array.from({ length: Math.min(AT_ONCE, left) }, () => open(wanted));
      await eventually(() => opened.every(({ isLevel }) => isLevel), {
        timeoutMs: OPEN_MS,
        what: () => `${opened.filter(({ isLevel }) => !isLevel).length} viewers are level`,
      });
    }
  },

  reached: async ({ seq, timeoutMs }) => {
    const behind = (): number =>
      viewers.filter(({ record }) => record.last < seq || !record.isLevel).length;
    const giveUpAt = performance.now() + timeoutMs;
    while (behind() > 0 && performance.now() < giveUpAt)
      await new Promise((resolve) => setTimeout(resolve, 20));
    return behind();
  },

  reports: () => viewers.map(({ transport, record }) => ({ ...record.report(), transport })),
};

function open(wanted: Viewers): ViewerRecord {
  const { transport } = wanted;
  const { record } = transport === "socket" ? watchBySocket(wanted) : new StreamViewer(wanted);
  viewers.push({ transport, record });
  return record;
}

serve(methods);
