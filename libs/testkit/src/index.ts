export type { Exit, LaunchedProcess } from "./child.ts";
export { openHiddenTab, pageAt, startChromium } from "./chromium.ts";
export { manualClock, type ManualClock } from "./clock.ts";
export { EventStreamClient, type StreamMessage } from "./event-stream.ts";
export { eventually, type EventuallyOptions } from "./eventually.ts";
export {
  type NatsCluster,
  type NatsOptions,
  type NatsServer,
  startNats,
  startNatsCluster,
} from "./nats.ts";
export { natsServerBinary } from "./nats-binary.ts";
export { freePort, freePorts } from "./ports.ts";
export { randomOf, seededRandom, type SeededRandom } from "./random.ts";
export { removeDir, tempDir } from "./reaper.ts";
export { type RedisServer, startRedis } from "./redis.ts";
export { type NatsFilter, natsFilter, type NatsMessage, type Verdict } from "./nats-filter.ts";
export {
  type Direction,
  type MakeTap,
  type Tap,
  type TapContext,
  tcpProxy,
  type TcpProxy,
} from "./proxy.ts";
export { type Fleet, type Return, startFleet, type ViewerReport } from "./fleet/fleet.ts";
export { type LoadBalancer, type MakeConfig, startHaproxy, startNginx } from "./load-balancers.ts";
export { type Methods, type Role, serve, startRole } from "./role.ts";
export {
  type Edge,
  type EdgeOptions,
  type RuntimeOptions,
  type ScriptOptions,
  type Service,
  type ServiceOptions,
  startEdge,
  startRuntime,
  startScript,
} from "./services.ts";
