// A process that launches others, prints them, and waits to be killed. It uses the built testkit.
import { natsServerBinary, startNats, startRedis } from "@throughline/testkit";

natsServerBinary();
const nats = await startNats();
const redis = await startRedis();
await redis.pause();
process.stdout.write(`${JSON.stringify({ pids: [nats.pid, redis.pid], dir: nats.dir })}\n`);
setInterval(() => {}, 1000);
