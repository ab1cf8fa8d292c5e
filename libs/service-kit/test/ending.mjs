// A process that lives until it is told to end. It uses the built service-kit.
import { createLogger, onSignals } from "@throughline/service-kit";

const log = createLogger({ service: "test", node: "n1" });
const beat = setInterval(() => {}, 1000);
onSignals({ log, steps: [{ name: "only", timeoutMs: 1000, run: () => clearInterval(beat) }] });
log.info("up");
