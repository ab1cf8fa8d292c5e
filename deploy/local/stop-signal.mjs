/** Everything that asks `npm start` to end: Ctrl-C, SIGTERM, a closed terminal, npm's own death. */
import { say, STOP_SIGNALS } from "./terminal.mjs";

/** One keypress may come twice, from the terminal and from npm: within this it is no impatience. */
const ONE_KEYPRESS_MS = 500;

/**
 * @returns what waits for the request; a second Ctrl-C calls the handler given to `onImpatience`
 */
export function stopSignal() {
  /** @type {{ reason: string, code: number, at: number } | undefined} */
  let request;
  /** @type {() => void} */
  let impatient = () => process.exit(130);
  /** @type {(code: number) => void} */
  let wake = () => undefined;
  const asked = new Promise((/** @type {(code: number) => void} */ resolve) => (wake = resolve));

  const ask = (/** @type {string} */ reason, code = 0) => {
    if (request !== undefined) return;
    request = { reason, code, at: Date.now() };
    say(`\n${reason}`);
    wake(code);
  };
  for (const signal of STOP_SIGNALS) {
    process.removeAllListeners(signal);
    process.on(signal, () => {
      if (request !== undefined && Date.now() - request.at > ONE_KEYPRESS_MS) impatient();
      ask("Stopping.");
    });
  }
  // A closed terminal takes our output with it; that must not keep us from stopping the rest.
  for (const stream of [process.stdout, process.stderr]) {
    stream.removeAllListeners("error");
    stream.on("error", () => ask("Stopping: the terminal is gone."));
  }
  if (process.env["npm_lifecycle_event"] !== undefined) {
    const npm = process.ppid;
    setInterval(() => process.ppid !== npm && ask("Stopping: npm is gone."), 1000).unref();
  }
  return {
    ask,
    isAsked: () => request !== undefined,
    /** Resolves with the exit code asked for. */
    asked,
    onImpatience: (/** @type {() => void} */ callback) => {
      impatient = callback;
    },
  };
}
