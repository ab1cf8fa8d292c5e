/** The command line. */
import { parseArgs } from "node:util";

export const PARTS = ["latency", "commands", "takeover", "fan-out", "memory", "storage"] as const;
export type PartName = (typeof PARTS)[number];

/** How long and how much; times in ms. */
export interface Sizes {
  readonly latencyMs: number;
  readonly commandsMs: number;
  /** Workers killed, and the lease that their successors wait for. */
  readonly takeovers: number;
  readonly takeoverAckWaitMs: number;
  /** One measured window of fan-out, and how many of them each server gets. */
  readonly windowMs: number;
  readonly rounds: number;
  /** Windows beyond them, to make up for those that do not count. */
  readonly spareRounds: number;
  /** Before the first window. After 2 s V8 was still compiling: 13 % of the edge's time. */
  readonly warmUpMs: number;
  readonly fanOuts: readonly number[];
  /** Idle connections. */
  readonly connections: number;
  /** Longest wait for a resident set that stands still. */
  readonly quietMs: number;
  readonly storageMs: number;
}

export interface Options {
  readonly parts: readonly PartName[];
  readonly quick: boolean;
  /** Folder for CPU profiles of the edge. */
  readonly profile: string | undefined;
  readonly sizes: Sizes;
}

export type Parsed =
  | { readonly kind: "run"; readonly options: Options }
  | { readonly kind: "help"; readonly text: string }
  | { readonly kind: "wrong"; readonly text: string };

const DEFAULT: Sizes = {
  latencyMs: 12_000,
  commandsMs: 12_000,
  takeovers: 5,
  takeoverAckWaitMs: 5_000,
  windowMs: 5_000,
  rounds: 3,
  spareRounds: 2,
  warmUpMs: 6_000,
  fanOuts: [1, 2, 100],
  connections: 5_000,
  quietMs: 20_000,
  storageMs: 10_000,
};

/** To see that it works. Too short to conclude from. */
const QUICK: Sizes = {
  ...DEFAULT,
  latencyMs: 2_000,
  commandsMs: 2_000,
  takeovers: 1,
  takeoverAckWaitMs: 1_000,
  windowMs: 1_000,
  rounds: 1,
  spareRounds: 0,
  warmUpMs: 1_000,
  connections: 1_000,
  quietMs: 2_000,
  storageMs: 3_000,
};

const HELP = `npm run bench -- [options] [part...]

Measures one edge on this machine, with a nats-server of its own and everything on loopback.
Absolute numbers are this machine's; what counts are the ratios, whose two sides are measured in
turns in the same run. Linux only: CPU and memory are read from /proc. Where other work takes the
cores, windows are refused; as root, "nice -n -10 npm run bench" gets them back.

parts (all, when none is named)
  latency    worker -> client, beside a bare NATS subscription
  commands   client -> accepted, and client -> effect seen, beside a bare NATS request
  takeover   from kill -9 of a worker until its run goes on
  fan-out    deliveries per CPU second at each fan-out, beside a bare uWebSockets publish
  memory     resident memory of an idle subscribed connection
  storage    stored messages per 1,000 tokens at 100 tokens a second

options
  --quick              a look in under a minute (default: all in about 7 minutes)
  --seconds N          length of one fan-out window, latency, commands and storage measurement
  --rounds N           windows each server gets per figure (default ${DEFAULT.rounds})
  --fan-outs 1,2,100   fan-outs to measure
  --connections N      idle connections (default ${DEFAULT.connections})
  --profile FOLDER     also writes CPU profiles of the edge, and reports where its time goes
  --help               this text

The report goes to loadtest/results, as Markdown and JSON.`;

export function parseOptions(args: readonly string[]): Parsed {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        quick: { type: "boolean", default: false },
        seconds: { type: "string" },
        rounds: { type: "string" },
        "fan-outs": { type: "string" },
        connections: { type: "string" },
        profile: { type: "string" },
        help: { type: "boolean", default: false },
      },
    });
    if (values.help) return { kind: "help", text: HELP };
    const base = values.quick ? QUICK : DEFAULT;
    const seconds = number("--seconds", values.seconds);
    const ms = seconds === undefined ? undefined : seconds * 1_000;
    const sizes: Sizes = {
      ...base,
      latencyMs: ms ?? base.latencyMs,
      commandsMs: ms ?? base.commandsMs,
      windowMs: ms ?? base.windowMs,
      storageMs: ms ?? base.storageMs,
      rounds: whole("--rounds", values.rounds) ?? base.rounds,
      connections: whole("--connections", values.connections) ?? base.connections,
      fanOuts:
        values["fan-outs"]?.split(",").map((text) => whole("--fan-outs", text) ?? 1) ??
        base.fanOuts,
    };
    const { quick, profile } = values;
    return { kind: "run", options: { parts: partsOf(positionals), quick, profile, sizes } };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { kind: "wrong", text: `${text}\n\n${HELP}` };
  }
}

function partsOf(named: readonly string[]): readonly PartName[] {
  if (named.length === 0) return PARTS;
  const unknown = named.find((name) => !PARTS.some((part) => part === name));
  if (unknown !== undefined) throw new Error(`there is no part "${unknown}"`);
  return PARTS.filter((part) => named.includes(part));
}

function number(flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new Error(`${flag} wants a number above 0, not "${text}"`);
}

function whole(flag: string, text: string | undefined): number | undefined {
  const value = number(flag, text);
  if (value === undefined || Number.isInteger(value)) return value;
  throw new Error(`${flag} wants a whole number, not "${text}"`);
}
