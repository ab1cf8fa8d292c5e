/**
 * Puts a newer C library than this system's beside the project, for tests of the current build of uWebSockets:
 * a Node started by its loader loads what asks for glibc 2.38. From Debian's newest suite, fetched like
 * nats-server; nothing of the system changes. Where it cannot be had it says why, and those tests are not run.
 */
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { aptSources, sidConfiguration } from "./apt-scratch.mjs";
import { LOCAL } from "./project.mjs";
import { entry, run, say } from "./terminal.mjs";

const FOLDER = join(LOCAL, "glibc");
const LIBRARIES = "usr/lib/x86_64-linux-gnu";

await entry(async () => {
  const why = existsSync(FOLDER) ? undefined : await obtain();
  say(why === undefined ? `a newer C library is in ${FOLDER}` : `no newer C library: ${why}`);
  return 0;
});

/** @returns {Promise<string | undefined>} why not */
async function obtain() {
  if (process.platform !== "linux" || process.arch !== "x64") return "this is not Linux on x64";
  const mirror = aptSources().find((source) => source.isDebian);
  if (mirror === undefined) return "apt's sources name no Debian mirror";
  mkdirSync(LOCAL, { recursive: true });
  const scratch = mkdtempSync(`${FOLDER}-`);
  try {
    const apt = ["-c", sidConfiguration(scratch, mirror), "-qq"];
    const options = { cwd: scratch, timeoutMs: 120_000 };
    for (const [command, args] of /** @type {const} */ ([
      ["apt-get", [...apt, "update"]],
      ["apt-get", [...apt, "download", "libc6", "libstdc++6", "libgcc-s1"]],
      ["sh", ["-c", 'for file in *.deb; do dpkg-deb -x "$file" package || exit 1; done']],
    ])) {
      const { code, output } = await run(command, [...args], options);
      if (code !== 0) return `${command} failed: ${output.trim().split("\n").at(-1)}`;
    }
    renameSync(join(scratch, "package", LIBRARIES), FOLDER);
    return undefined;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
