import { readFileSync } from "node:fs";

const SETTING = "/proc/sys/net/ipv4/tcp_notsent_lowat";
const WANTED_BYTES = 131_072;

/**
 * The kernel takes some 3.8 MB for a stalled socket before it shows as buffered; with
 * `tcp_notsent_lowat` at 128 KiB it is 0.2 MB. Returns a warning where it is not set.
 */
export function kernelAdvice(): string | undefined {
  let text: string;
  try {
    text = readFileSync(SETTING, "latin1");
  } catch {
    // Not Linux, or not readable: there is nothing to advise.
    return undefined;
  }
  const bytes = Number(text);
  if (bytes > 0 && bytes <= WANTED_BYTES) return undefined;
  return (
    `net.ipv4.tcp_notsent_lowat is ${text.trim()}: a client that does not read can hold 4 MB of kernel ` +
    `memory; set it to ${WANTED_BYTES}`
  );
}
