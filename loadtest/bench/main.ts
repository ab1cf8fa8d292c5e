/** `npm run bench`: see `--help`. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Options, parseOptions, type PartName } from "./options.ts";
import { commands } from "./parts/commands.ts";
import { fanOut } from "./parts/fan-out.ts";
import { latency } from "./parts/latency.ts";
import { memory } from "./parts/memory.ts";
import { storage } from "./parts/storage.ts";
import { takeover } from "./parts/takeover.ts";
import { commit, loadNow, machine } from "./report/machine.ts";
import { markdown, type Report } from "./report/markdown.ts";
import type { PartReport, Say } from "./report/part.ts";
import { progress } from "./report/progress.ts";
import { openStage, type Stage } from "./stage.ts";

const ROOM = fileURLToPath(new URL("../..", import.meta.url));
const RESULTS = join(ROOM, "results");

const RUN: Readonly<
  Record<PartName, (stage: Stage, options: Options, say: Say) => Promise<PartReport>>
> = {
  latency: (stage, { sizes }, say) => latency(stage, sizes, say),
  commands: (stage, { sizes }, say) => commands(stage, sizes, say),
  takeover: (stage, { sizes }, say) => takeover(stage, sizes, say),
  "fan-out": fanOut,
  memory: (stage, { sizes }, say) => memory(stage, sizes, say),
  storage: (stage, { sizes }, say) => storage(stage, sizes, say),
};

const parsed = parseOptions(process.argv.slice(2));
if (parsed.kind === "run") {
  process.exitCode = await bench(parsed.options);
} else {
  console.log(parsed.text);
  process.exitCode = parsed.kind === "help" ? 0 : 2;
}

async function bench(options: Options): Promise<number> {
  const began = performance.now();
  const load = loadNow();
  const line = progress(process.stdout);
  line.say("starting nats-server");
  const stage = await openStage({ profiled: options.profile !== undefined });
  // Servers run in groups of their own: a Ctrl-C in the terminal does not reach them.
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => void stage.dispose().finally(() => process.exit(130)));
  }
  try {
    const parts: PartReport[] = [];
    for (const name of options.parts) {
      parts.push(await RUN[name](stage, options, line.say));
      line.done(`${name} measured`);
    }
    const report: Report = {
      date: new Date().toISOString(),
      command: ["npm run bench --", ...process.argv.slice(2)].join(" "),
      commit: commit(ROOM),
      machine: machine(await natsVersion(stage), load),
      seconds: (performance.now() - began) / 1000,
      quick: options.quick,
      parts,
    };
    const text = markdown(report);
    console.log(`\n${text}`);
    console.log(`Written to ${save(report, text)}`);
    return 0;
  } catch (error) {
    console.error(error);
    console.error(`The edge's last words:\n${stage.lastWords()}`);
    return 1;
  } finally {
    await stage.dispose();
  }
}

async function natsVersion(stage: Stage): Promise<string> {
  const { version } = (await stage.nats.monitor("/varz")) as { version: string };
  return version;
}

/** The path of the Markdown file, without its ending: the JSON file lies beside it. */
function save(report: Report, text: string): string {
  mkdirSync(RESULTS, { recursive: true });
  const name = `bench-${report.date.slice(0, 19).replaceAll(":", "")}`;
  writeFileSync(join(RESULTS, `${name}.md`), text);
  writeFileSync(join(RESULTS, `${name}.json`), `${JSON.stringify(report, undefined, 2)}\n`);
  return `loadtest/results/${name}.{md,json}`;
}
