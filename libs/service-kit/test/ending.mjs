// A process that lives until it is told to end. With `busy` its only background thread then has other work
// before it can write the log. It uses the built service-kit.
import { pbkdf2 } from "node:crypto";
import { createLogger, onSignals } from "@throughline/service-kit";

const log = createLogger({ service: "test", node: "n1" });
const beat = setInterval(() => {}, 1000);
const work = () => pbkdf2("work", "salt", 100_000, 64, "sha512", () => {});
if (process.argv[2] === "busy") process.on("SIGTERM", work);
const run = () => {
  clearInterval(beat);
  log.info("the only step");
};
onSignals({ log, steps: [{ name: "only", timeoutMs: 1000, run }] });
log.info("up");
