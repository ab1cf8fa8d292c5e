/** A stream of POSTs over kept-alive connections, as a program behind a load balancer sends them. */
import { randomUUID } from "node:crypto";
import { Agent, request } from "node:http";
import { BY_HAND } from "./hand-worker.ts";
import { TOKEN } from "./written-runs.ts";

export interface PostReport {
  readonly sent: number;
  /** Of all that were not accepted: the status, or the error. */
  readonly failures: readonly string[];
  /** Runs that the answers name. */
  readonly runs: ReadonlySet<string>;
  /** Answers that say `duplicate`: the load balancer had sent the request a second time. */
  readonly duplicates: number;
}

/**
 * Starts a run so often, without waiting for the last one's answer. Every second start has no
 * Idempotency-Key, as of a client that does not know better.
 */
export function keepPosting(
  url: string,
  session: string,
  everyMs: number,
): { sent(): number; stop(): Promise<PostReport> } {
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  const answers: Promise<string | { run_id: string; duplicate: boolean }>[] = [];
  const timer = setInterval(() => {
    const key = answers.length % 2 === 0 ? { "idempotency-key": randomUUID() } : {};
    answers.push(post(agent, `${url}/v1/sessions/${session}/runs`, key));
  }, everyMs);
  return {
    sent: () => answers.length,
    stop: async () => {
      clearInterval(timer);
      const all = await Promise.all(answers);
      agent.destroy();
      const taken = all.filter((answer) => typeof answer !== "string");
      return {
        sent: all.length,
        failures: all.filter((answer) => typeof answer === "string"),
        runs: new Set(taken.map(({ run_id }) => run_id)),
        duplicates: taken.filter(({ duplicate }) => duplicate).length,
      };
    },
  };
}

function post(
  agent: Agent,
  url: string,
  headers: Record<string, string>,
): Promise<string | { run_id: string; duplicate: boolean }> {
  return new Promise((resolve) => {
    const options = {
      agent,
      method: "POST",
      headers: { authorization: `Bearer ${TOKEN}`, ...headers },
    };
    const sent = request(url, options, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (text: string) => (body += text));
      response.on("error", (error) => resolve(error.message));
      response.on("end", () => {
        if (response.statusCode !== 202) resolve(`${response.statusCode}: ${body.slice(0, 200)}`);
        else resolve(JSON.parse(body));
      });
    });
    sent.on("error", (error) => resolve(error.message));
    sent.end(JSON.stringify({ agent: BY_HAND, input: null }));
  });
}
