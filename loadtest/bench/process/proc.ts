/** What Linux says of a process. */
import { readFileSync } from "node:fs";

/** Ticks a second of /proc times: 100 on every Linux that Node runs on (USER_HZ). */
const TICKS = 100;

/** CPU seconds, user and system, of all threads of a process since it began; steps of 10 ms. */
function cpuSeconds(pid: number): number {
  return cpuSecondsOf(readFileSync(`/proc/${pid}/stat`, "utf8"));
}

/** Resident set of a process in bytes. */
export function rssBytes(pid: number): number {
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
  if (match === null) throw new Error(`process ${pid} has no VmRSS: it has ended`);
  return Number(match[1]) * 1024;
}

/** How often the main thread has gone to sleep: once for every time that its event loop was woken. */
export function wakeUps(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const match = /^voluntary_ctxt_switches:\s+(\d+)$/m.exec(status);
  if (match === null) throw new Error(`process ${pid} has ended`);
  return Number(match[1]);
}

/** @internal The process's name stands in parentheses and may hold any character, `)` included. */
export function cpuSecondsOf(stat: string): number {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [user, system] = [Number(fields[11]), Number(fields[12])];
  if (!Number.isFinite(user) || !Number.isFinite(system)) {
    throw new Error(`not a line of /proc/<pid>/stat: ${stat}`);
  }
  return (user + system) / TICKS;
}

/** A running total, looked at from time to time. */
export interface CpuClock {
  /** CPU seconds since the last call (or since the clock was made). */
  lap(): number;
}

export function cpuClock(pid: number): CpuClock {
  let last = cpuSeconds(pid);
  return {
    lap: () => {
      const now = cpuSeconds(pid);
      const used = now - last;
      last = now;
      return used;
    },
  };
}

/** Microseconds on a clock that all processes of the machine share (CLOCK_MONOTONIC). */
export function sharedMicros(): number {
  const [seconds, nanos] = process.hrtime();
  return seconds * 1e6 + nanos / 1e3;
}
