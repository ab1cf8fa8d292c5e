/**
 * A run as a simple sequential machine: what each command must be answered with, given all that the log
 * says before. It knows nothing of the reducer, of workers or of edges. It is fed the log from its start
 * and throws at the first event that the rules do not allow.
 */
import { isTerminal } from "@throughline/protocol";
import type { DeviceCommand } from "./device.ts";
import type { Frame } from "./raw-client.ts";

/** What a command must be answered with: an event of a type, with this in it. */
interface Expected {
  readonly type: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

interface Approval {
  decision?: unknown;
  by?: unknown;
}

interface Call {
  readonly client: boolean;
  claim?: unknown;
  status?: "completed" | "failed";
}

interface Input {
  content?: unknown;
  received: boolean;
}

export class RunModel {
  readonly #commands: ReadonlyMap<string, DeviceCommand>;
  #life: "queued" | "running" | "interrupted" | "returned" | "ended" = "queued";
  /** Continued while paused: `run.resumed` follows. */
  #continued = false;
  readonly approvals: Map<unknown, Approval> = new Map();
  readonly calls: Map<unknown, Call> = new Map();
  readonly inputs: Map<unknown, Input> = new Map();
  readonly inbox: unknown[] = [];
  /** Command → seq of its answer. */
  readonly answers: Map<string, number> = new Map();
  /** Closed since the last answer: whatever closes a thing by itself must say at once what it was. */
  #closing = 0;

  /** @param commands all that were sent, by id */
  constructor(commands: ReadonlyMap<string, DeviceCommand>) {
    this.#commands = commands;
  }

  take(event: Frame): void {
    if (this.#life === "ended") throw new Error("an event after the end");
    const id = event["reply_to"];
    // `run.queued` answers the start, which is no command to the run.
    if (event.type === "run.queued") return;
    if (typeof id === "string") this.#answer(id, event);
    else this.#own(event);
    if (isTerminal(event.type)) this.#end();
  }

  #answer(id: string, event: Frame): void {
    const command = this.#commands.get(id);
    if (command === undefined) throw new Error(`an answer to ${id}, which nobody sent`);
    if (this.answers.has(id)) throw new Error(`a second answer to ${id}`);
    this.answers.set(id, event.seq ?? 0);
    const expected = this.#expect(command, event);
    const payload = event.payload ?? {};
    const fits =
      event.type === expected.type &&
      Object.entries(expected.payload).every(([name, value]) => holds(payload[name], value));
    if (!fits)
      throw new Error(
        `${JSON.stringify(command)} is answered with ${JSON.stringify(event)} instead of ${JSON.stringify(expected)}`,
      );
    if (this.#closing > 0 && event.type !== "run.interrupted" && event.type !== "run.cancelled")
      throw new Error(`things were closed before ${event.type}`);
    this.#closing = 0;
    if (event.type !== "command.rejected") this.#apply(command, event);
  }

  #expect({ type, payload }: DeviceCommand, event: Frame): Expected {
    const of: Record<string, unknown> = isRecord(payload) ? payload : {};
    const paused = this.#life === "interrupted";
    if (this.#findsNobody(type, event)) return rejected("not_allowed");
    switch (type) {
      case "run.interrupt":
        return paused
          ? rejected("not_allowed")
          : { type: "run.interrupted", payload: { by: "ann" } };
      case "run.resume":
        return paused ? { type: "run.resumed", payload: {} } : rejected("not_allowed");
      case "run.cancel":
        return { type: "run.cancelled", payload: { by: "ann" } };
      case "run.continue":
        return {
          type: "input.received",
          payload: { content: of["content"], by: "ann", queued: !paused },
        };
      case "step.retry":
        return rejected("not_found");
      case "approval.respond":
        return this.#expectDecision(of);
      case "tool_call.claim":
        return this.#expectClaim(of);
      case "tool_result.report":
        return this.#expectOutcome(of);
      case "input.respond": {
        const input = this.inputs.get(of["input_id"]);
        if (input === undefined) return rejected("not_found");
        if (input.received) return rejected("already_resolved");
        return { type: "input.received", payload: { ...of, by: "ann" } };
      }
      default:
        throw new Error(`the model does not know ${type}`);
    }
  }

  /**
   * When its agent has returned is the worker's to say: what only an agent could heed is refused from
   * then on, until the end comes or another worker executes the agent again.
   */
  #findsNobody(type: string, { type: answer, payload }: Frame): boolean {
    if (!NEEDS_AGENT.has(type) || this.#life === "interrupted") return false;
    if (this.#life === "running" && answer === "command.rejected") {
      if (payload?.["code"] === "not_allowed") this.#life = "returned";
    }
    return this.#life === "returned";
  }

  #expectDecision(of: Readonly<Record<string, unknown>>): Expected {
    const approval = this.approvals.get(of["approval_id"]);
    if (approval === undefined) return rejected("not_found");
    if (approval.decision !== undefined)
      return rejected("already_resolved", { decision: approval.decision });
    return { type: "approval.resolved", payload: { ...of, by: "ann" } };
  }

  #expectClaim(of: Readonly<Record<string, unknown>>): Expected {
    const call = this.calls.get(of["tool_call_id"]);
    if (call === undefined) return rejected("not_found");
    if (!call.client) return rejected("not_allowed");
    if (call.status !== undefined) return rejected("already_resolved", { status: call.status });
    return call.claim === undefined || call.claim === of["claim_id"]
      ? { type: "tool_call.status", payload: { status: "claimed", claim_id: of["claim_id"] } }
      : rejected("not_allowed");
  }

  #expectOutcome(of: Readonly<Record<string, unknown>>): Expected {
    const { tool_call_id, claim_id, result, error } = of;
    const call = this.calls.get(tool_call_id);
    if (call === undefined) return rejected("not_found");
    if (!call.client) return rejected("not_allowed");
    if (call.status !== undefined) return rejected("already_resolved", { status: call.status });
    if (claim_id !== undefined && claim_id !== call.claim) return rejected("stale");
    if (claim_id === undefined && call.claim !== undefined) return rejected("not_allowed");
    return error === undefined
      ? { type: "tool_call.completed", payload: { tool_call_id, result } }
      : { type: "tool_call.failed", payload: { tool_call_id } };
  }

  #apply({ type, payload }: DeviceCommand, event: Frame): void {
    const of: Record<string, unknown> = isRecord(payload) ? payload : {};
    switch (type) {
      case "run.interrupt":
        this.#allClosed();
        this.#life = "interrupted";
        return;
      case "run.cancel":
        this.#allClosed();
        return;
      case "run.resume":
        this.#life = "running";
        return;
      case "run.continue":
        this.inbox.push(of["content"]);
        this.#continued = this.#life === "interrupted";
        if (this.#continued) this.#life = "running";
        return;
      case "input.respond":
        this.inputs.set(of["input_id"], { received: true, content: of["content"] });
        return;
      case "tool_call.claim": {
        const call = this.calls.get(of["tool_call_id"]);
        if (call) call.claim = of["claim_id"];
        return;
      }
      default:
        this.#settle(event);
    }
  }

  /** An outcome of a call or an approval. */
  #settle({ type, payload = {} }: Frame): void {
    const approval = this.approvals.get(payload["approval_id"]);
    if (type === "approval.resolved" && approval) {
      if (approval.decision !== undefined) throw new Error("a second decision");
      approval.decision = payload["decision"];
      approval.by = payload["by"];
    }
    const call = this.calls.get(payload["tool_call_id"]);
    if ((type === "tool_call.completed" || type === "tool_call.failed") && call) {
      if (call.status !== undefined) throw new Error("a second outcome");
      call.status = type === "tool_call.completed" ? "completed" : "failed";
    }
  }

  /** An event that no command caused. */
  #own(event: Frame): void {
    const { type, payload = {} } = event;
    const paused = this.#life === "interrupted";
    switch (type) {
      case "run.started":
        this.#life = "running";
        return;
      case "run.resumed":
        // Another worker: a pause stays one.
        if (this.#life === "returned") this.#life = "running";
        if (Number(payload["attempt"]) > 1 || this.#continued) this.#continued = false;
        else throw new Error("resumed by nobody");
        return;
      case "approval.requested":
        this.#fresh(this.approvals, payload["approval_id"], paused);
        this.approvals.set(payload["approval_id"], {});
        return;
      case "tool_call.created":
        this.#fresh(this.calls, payload["tool_call_id"], paused);
        this.calls.set(payload["tool_call_id"], { client: payload["executor"] === "client" });
        return;
      case "input.requested":
        this.#fresh(this.inputs, payload["input_id"], paused);
        this.inputs.set(payload["input_id"], { received: false });
        return;
      case "approval.resolved":
      case "tool_call.completed":
      case "tool_call.failed":
        this.#settle(event);
        // A tool of the worker ends by itself.
        if (this.calls.get(payload["tool_call_id"])?.client !== false) this.#closing += 1;
        return;
      case "message.started":
      case "model.chunk":
        if (paused) throw new Error(`${type} of a run that is paused`);
        return;
      default:
        return;
    }
  }

  /** Each thing is asked for once in the run's life, however often the agent is executed. */
  #fresh(things: ReadonlyMap<unknown, unknown>, id: unknown, paused: boolean): void {
    if (paused) throw new Error(`${String(id)} is asked for in a run that is paused`);
    if (things.has(id)) throw new Error(`${String(id)} is asked for twice`);
  }

  #allClosed(): void {
    const open = [
      ...[...this.approvals.values()].filter(({ decision }) => decision === undefined),
      ...[...this.calls.values()].filter(({ status }) => status === undefined),
    ];
    if (open.length > 0) throw new Error(`${open.length} things are still open`);
  }

  #end(): void {
    this.#allClosed();
    this.#life = "ended";
  }
}

/** Commands that mean the agent, and not a thing of the run. */
const NEEDS_AGENT: ReadonlySet<string> = new Set(["run.interrupt", "run.continue", "step.retry"]);

function rejected(code: string, current?: Readonly<Record<string, unknown>>): Expected {
  return {
    type: "command.rejected",
    payload: { code, ...(current === undefined ? {} : { current }) },
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** All that is expected is there; there may be more. */
function holds(actual: unknown, expected: unknown): boolean {
  if (!isRecord(expected)) return JSON.stringify(actual) === JSON.stringify(expected);
  return (
    isRecord(actual) &&
    Object.entries(expected).every(([name, value]) => holds(actual[name], value))
  );
}
