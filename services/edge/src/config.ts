import {
  flag,
  list,
  loadConfig,
  milliseconds,
  optionalPort,
  port,
  type Setting,
  sharedSettings,
  text,
  wholeNumber,
} from "@throughline/service-kit";
import { FRAME_RATE } from "@throughline/protocol";
import { z } from "zod";
import { isOriginEntry } from "./auth/origins.ts";
import { isNetwork } from "./auth/proxies.ts";
import { SHORTEST_KEY_BYTES } from "./auth/stream-tickets.ts";

const MIB = 1024 * 1024;

const ownSettings: {
  TL_HOST: Setting<string>;
  TL_PORT: Setting<number>;
  TL_SHARED_PORT: Setting<number | undefined>;
  TL_DEV_TOKENS: Setting<boolean>;
  TL_TRUSTED_PROXIES: Setting<string[]>;
  TL_ALLOWED_ORIGINS: Setting<string[]>;
  TL_STREAM_KEY: Setting<string[]>;
  TL_MAX_CONNECTIONS: Setting<number>;
  TL_FRAMES_PER_SECOND: Setting<number>;
  TL_FANOUT_BYTES: Setting<number>;
  TL_DRAIN_DELAY_MS: Setting<number>;
  TL_DRAIN_MS: Setting<number>;
} = {
  TL_HOST: text("127.0.0.1"),
  /** This process's own port. */
  TL_PORT: port(8080),
  /** A port that several edges of one machine listen on together. */
  TL_SHARED_PORT: optionalPort(),
  /** Local mode: `dev.<tenant>.<user>` is a token. */
  TL_DEV_TOKENS: flag(false),
  /** Load balancers, whose `X-Forwarded-For` says who the client is: addresses or networks, comma separated. */
  TL_TRUSTED_PROXIES: list(",").refine((networks) => networks.every(isNetwork), {
    error: "must be addresses or networks as 10.0.0.0/8, separated by commas",
  }),
  /** Pages of which origins may use this node, comma separated; `*` for any. In local mode those of this machine may besides. */
  TL_ALLOWED_ORIGINS: list(",").refine((origins) => origins.every(isOriginEntry), {
    error: "must be origins as https://app.example.org, separated by commas, without a path",
  }),
  /**
   * Of stream tickets, the same on all nodes: the first signs, all are taken, so that a new one is put in front
   * and the old one goes when its tickets have expired. Without it there are no tickets.
   */
  TL_STREAM_KEY: list(",").refine(
    (keys) => keys.every((key) => Buffer.byteLength(key) >= SHORTEST_KEY_BYTES),
    {
      error: `must be keys of ${SHORTEST_KEY_BYTES} bytes or more, separated by commas (openssl rand -hex 32)`,
    },
  ),
  TL_MAX_CONNECTIONS: wholeNumber(50_000, { min: 1 }),
  /** From each client, in the long run; a burst of ten seconds' worth is taken after a pause. */
  TL_FRAMES_PER_SECOND: wholeNumber(FRAME_RATE.perSecond, { min: 1 }),
  /** For rings, log pages and delta buffers together. */
  TL_FANOUT_BYTES: wholeNumber(128 * MIB, { min: MIB }),
  /** How long new connections are still taken after the order to stop: load balancers need time to hear of it. */
  TL_DRAIN_DELAY_MS: milliseconds(0, { max: 600_000 }),
  /** Over which the clients of a node that stops spread their reconnects. */
  TL_DRAIN_MS: milliseconds(5_000, { max: 600_000 }),
};

type Settings = typeof sharedSettings & typeof ownSettings;
export type Config = z.output<z.ZodObject<Settings>>;

/** Throws ConfigError, naming every variable that is wrong. */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
  return loadConfig(z.object({ ...sharedSettings, ...ownSettings }), env);
}
