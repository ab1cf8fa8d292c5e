/** `npm run bench`: set-up, build, then the measurements of loadtest/bench. Arguments are its own. */
import { join } from "node:path";
import { ROOT } from "./project.mjs";
import { setUp } from "./setup.mjs";
import { entry, show } from "./terminal.mjs";

await entry(async () => {
  const { nats } = await setUp();
  const main = join(ROOT, "loadtest/dist/bench/main.js");
  return show(process.execPath, ["--enable-source-maps", main, ...process.argv.slice(2)], {
    cwd: ROOT,
    env: { ...process.env, NATS_SERVER: nats.path },
  });
});
