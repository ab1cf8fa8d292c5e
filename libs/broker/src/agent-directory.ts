import type { Broker } from "./broker.ts";
import { Bucket } from "./bucket.ts";
import type { RawMessage } from "./direct-read.ts";
import { BrokerUnavailable } from "./errors.ts";
import { leaderRead } from "./leader-read.ts";
import { publishAcked } from "./publish.ts";

const AGENTS_BUCKET = "TL_AGENTS";

export interface Announcement {
  readonly agent: string;
  readonly description: string;
  /** Inputs that show what the agent takes. */
  readonly examples: readonly unknown[];
  /** Id of the announcing worker process. */
  readonly worker: string;
}

export interface AgentKind {
  readonly agent: string;
  readonly description: string;
  readonly examples: readonly unknown[];
  /** Worker processes that offer it now. */
  readonly workers: number;
}

export interface AgentDirectoryOptions {
  /** A worker not heard of for so long vanishes, in ms (default 30,000). It is heard of every third. */
  readonly ttlMs?: number;
  readonly onWarning?: (text: string, cause: unknown) => void;
}

const PUBLISH_MS = 2_000;
const RETRY_MS = 500;

/** Which agent kinds are offered now: one key `<agent>.<worker>` per announcement, kept alive by a heartbeat. */
export class AgentDirectory {
  readonly ttlMs: number;
  readonly #broker: Pick<Broker, "nc" | "jsm" | "replicas" | "onConnection">;
  readonly #bucket: Bucket;
  readonly #onWarning: (text: string, cause: unknown) => void;
  #ttlSet = false;

  constructor(
    broker: Pick<Broker, "nc" | "jsm" | "replicas" | "onConnection">,
    options: AgentDirectoryOptions = {},
  ) {
    this.ttlMs = options.ttlMs ?? 30_000;
    this.#broker = broker;
    this.#bucket = new Bucket(broker, { name: AGENTS_BUCKET, ttlMs: this.ttlMs });
    this.#onWarning = options.onWarning ?? (() => undefined);
  }

  /**
   * Offers an agent until stopped. A beat that fails is tried again soon, for as long as it takes;
   * after an outage it is not waited for: sweeps find the agent missing until it comes.
   */
  announce(announcement: Announcement): { stop(): Promise<void> } {
    const subject = this.#bucket.subject(`${announcement.agent}.${announcement.worker}`);
    const body = Buffer.from(JSON.stringify(announcement));
    let timer: NodeJS.Timeout | undefined;
    let beating: Promise<void> = Promise.resolve();
    /** A beat that hangs from before a reconnect must not go on beside the new one. */
    let current = 0;
    const beat = async (number: number): Promise<void> => {
      const stored = await this.#beat(subject, body);
      if (number !== current) return;
      const again = stored ? this.ttlMs / 3 : Math.min(this.ttlMs / 3, RETRY_MS);
      timer = setTimeout(start, again);
    };
    const start = (): void => {
      clearTimeout(timer);
      current += 1;
      beating = beat(current);
    };
    const unwatch = this.#broker.onConnection((state) => {
      if (state === "up") start();
    });
    start();
    return {
      stop: async () => {
        unwatch();
        clearTimeout(timer);
        current += 1;
        await beating;
        await this.#withdraw(subject);
      },
    };
  }

  async #beat(subject: string, body: Uint8Array): Promise<boolean> {
    try {
      await this.#bucket.ready();
      if (!this.#ttlSet) await this.#bucket.setTtl(this.ttlMs);
      this.#ttlSet = true;
    } catch (error) {
      this.#onWarning(`${AGENTS_BUCKET} is not ready`, error);
      return false;
    }
    const outcome = await publishAcked(this.#broker.nc, subject, body, {}, PUBLISH_MS);
    if (outcome.kind !== "stored") this.#onWarning(`${subject} could not be announced`, outcome);
    return outcome.kind === "stored";
  }

  /** The key goes with its history, so that what the stream holds is what is offered. */
  async #withdraw(subject: string): Promise<void> {
    try {
      await this.#broker.jsm.streams.purge(this.#bucket.stream, { filter: subject });
    } catch (error) {
      this.#onWarning("an announcement stays until its time is over", error);
    }
  }

  /** Is the agent offered now, as the leader says? Rejects when it does not answer. */
  async offered(agent: string): Promise<boolean> {
    return (await this.#subjects(`${agent}.*`)).length > 0;
  }

  /** All kinds by name: one request, and one more per kind. No consumer is made. */
  async list(): Promise<AgentKind[]> {
    const byAgent = new Map<string, string[]>();
    for (const subject of await this.#subjects(">")) {
      const agent = subject.split(".")[2] ?? "";
      byAgent.set(agent, [...(byAgent.get(agent) ?? []), subject]);
    }
    const kinds = await Promise.all(
      [...byAgent].map(async ([agent, subjects]) => {
        const found = await this.#announced(subjects);
        return found && { agent, ...found, workers: subjects.length };
      }),
    );
    return kinds
      .filter((kind) => kind !== undefined)
      .toSorted((a, b) => (a.agent < b.agent ? -1 : 1));
  }

  async #subjects(keys: string): Promise<string[]> {
    try {
      await this.#bucket.ready();
      const { state } = await this.#broker.jsm.streams.info(this.#bucket.stream, {
        subjects_filter: this.#bucket.subject(keys),
      });
      return Object.keys(state.subjects ?? {});
    } catch (cause) {
      throw new BrokerUnavailable("the leader does not say who offers which agents", { cause });
    }
  }

  /** What one of the workers says of the agent; one that went meanwhile is passed over. */
  async #announced(
    subjects: readonly string[],
  ): Promise<Pick<AgentKind, "description" | "examples"> | undefined> {
    for (const subject of subjects) {
      const query = { last_by_subj: subject };
      const raw = await leaderRead(this.#broker.nc, this.#bucket.stream, query);
      if (!raw) continue;
      const value = this.#parse(raw);
      if (typeof value !== "object" || value === null) continue;
      const description: unknown = Reflect.get(value, "description");
      const examples: unknown = Reflect.get(value, "examples");
      return {
        description: typeof description === "string" ? description : "",
        examples: Array.isArray(examples) ? examples : [],
      };
    }
    return undefined;
  }

  /** One worker that announces nonsense must not take the list from everybody. */
  #parse(raw: RawMessage): unknown {
    try {
      const value: unknown = JSON.parse(Buffer.from(raw.body).toString("utf8"));
      return value;
    } catch (error) {
      this.#onWarning(`the announcement on ${raw.subject} is not JSON`, error);
      return undefined;
    }
  }
}

export function openAgentDirectory(
  broker: Pick<Broker, "nc" | "jsm" | "replicas" | "onConnection">,
  options: AgentDirectoryOptions = {},
): AgentDirectory {
  return new AgentDirectory(broker, options);
}
