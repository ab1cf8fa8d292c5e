export { adminServer, type AdminOptions, type AdminServer, type Health } from "./admin.ts";
export { ConfigError, loadConfig, type Problem } from "./config.ts";
export { watchEventLoop } from "./event-loop.ts";
export { createLogger, type Logger, type LoggerOptions, redactText } from "./log.ts";
export { type Count, createMetrics, type Metrics } from "./metrics.ts";
export {
  flag,
  list,
  type LogLevel,
  milliseconds,
  oneOf,
  optionalPort,
  optionalText,
  port,
  type Setting,
  sharedSettings,
  text,
  wholeNumber,
} from "./settings.ts";
export { onSignals, type Shutdown, type ShutdownOptions, type ShutdownStep } from "./shutdown.ts";
