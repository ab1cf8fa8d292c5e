/*
 * Makes valid logs of a run: a writer that does what the protocol allows, in any order that it allows,
 * and keeps its own account of every message's text. What it does is given by a list of small numbers,
 * so that a failing log shrinks.
 */
import fc from "fast-check";
import type { EphemeralEvent, NewEvent, RunEvent, UnknownEvent } from "../src/index.ts";

export type LogEvent = RunEvent | UnknownEvent;

export interface Log {
  /** Durable and ephemeral events in the order in which they were sent. */
  readonly events: readonly LogEvent[];
  /** Text of every message that was completed and not superseded. */
  readonly texts: ReadonlyMap<string, string>;
  /** It ends with a terminal event. */
  readonly complete: boolean;
}

const RUN = "run_1";
const SESSION = "ses_1";

interface Message {
  readonly id: string;
  readonly step: string | undefined;
  /** All that was written. */
  text: string;
  /** How much of it is in chunks. */
  settled: number;
}

type Choice = {
  readonly op: number;
  readonly pick: number;
  readonly size: number;
  readonly text: string;
};

// Pieces that break when text is counted or cut in other units than UTF-16's.
const pieces = fc.constantFrom(
  "a",
  "bc ",
  "é",
  "\n",
  "👩‍💻",
  "\u{1d11e}",
  "\ud83d",
  "\udd0d",
  "\u0000",
  "漢",
);
const choice: fc.Arbitrary<Choice> = fc.record({
  op: fc.nat({ max: 999 }),
  pick: fc.nat({ max: 99 }),
  size: fc.nat({ max: 99 }),
  text: fc.array(pieces, { minLength: 1, maxLength: 6 }).map((parts) => parts.join("")),
});

/** Valid logs; finished ones only, where asked for. */
export function logs(options: { complete?: boolean } = {}): fc.Arbitrary<Log> {
  return fc
    .tuple(fc.array(choice, { maxLength: 150, size: "max" }), fc.boolean())
    .map(([choices, finish]) => writeLog(choices, options.complete === true || finish));
}

function writeLog(choices: readonly Choice[], finish: boolean): Log {
  const writer = new Writer();
  for (const step of choices) writer.act(step);
  if (finish) writer.finish(choices.length);
  return { events: writer.events, texts: writer.texts, complete: finish };
}

class Writer {
  readonly events: LogEvent[] = [];
  readonly texts = new Map<string, string>();
  private seq = 0;
  private attempt = 1;
  private ids = 0;
  private paused = false;
  private readonly messages: Message[] = [];
  private readonly steps: string[] = [];
  private readonly failedSteps: string[] = [];
  private readonly calls: string[] = [];
  private readonly approvals: string[] = [];
  private readonly inputs: string[] = [];

  constructor() {
    const payload = { agent: "llm", input: { prompt: "?" }, by: "alice", deadline: 9e12 };
    this.store({ type: "run.queued", payload, reply_to: "cmd_0", reply_by: "alice" });
    this.store({ type: "run.started", payload: { attempt: 1, worker: "w1" } });
  }

  act(choice: Choice): void {
    if (this.paused) {
      this.paused = false;
      this.store({ type: "run.resumed", payload: { attempt: this.attempt, worker: "w" } });
      return;
    }
    const acts = [
      // Text is what most of a log is.
      ...Array.from({ length: 6 }, () => () => this.write(choice)),
      ...Array.from({ length: 3 }, () => () => this.checkpoint(choice)),
      () => this.startMessage(choice),
      () => this.endMessage(choice),
      () => this.startStep(choice),
      () => this.endStep(choice),
      () => this.tool(choice),
      () => this.approve(choice),
      () => this.ask(choice),
      () => this.emit(choice),
      () => this.refuse(choice),
      () => this.interrupt(),
      () => this.takeOver(choice),
      () =>
        this.store({
          type: "run.status",
          payload: { status: choice.pick % 2 ? "running" : "waiting_tools" },
        }),
      () => this.storeAs("future.event", { anything: choice.text }),
    ];
    acts[choice.op % acts.length]?.();
  }

  finish(how: number): void {
    while (this.messages.length > 0) this.endMessage({ op: 0, pick: 0, size: 0, text: "" });
    if (how % 3 === 0) this.store({ type: "run.completed", payload: { output: how } });
    else if (how % 3 === 1)
      this.store({ type: "run.failed", payload: { code: "x", message: "", retryable: true } });
    else this.store({ type: "run.cancelled", payload: { by: "bob" }, reply_to: "cmd_end" });
  }

  private startMessage({ pick }: Choice): void {
    const step = pick % 3 === 0 ? this.steps.at(-1) : undefined;
    this.open({ id: this.id("msg"), step, text: "", settled: 0 }, pick);
  }

  private open(message: Message, pick: number): void {
    this.messages.push(message);
    this.store({
      type: "message.started",
      payload: {
        message_id: message.id,
        role: "assistant",
        channel: pick % 2 ? "text" : "reasoning",
      },
      ...(message.step === undefined ? {} : { step_id: message.step }),
    });
  }

  private write({ pick, size, text }: Choice): void {
    const message = at(this.messages, pick);
    if (message === undefined) {
      this.startMessage({ op: 0, pick, size, text });
      return;
    }
    const offset = message.text.length;
    message.text += text;
    // Deltas may be cut anywhere, also between the halves of a pair.
    const cut = size % (text.length + 1);
    this.delta(message, offset, text.slice(0, cut));
    this.delta(message, offset + cut, text.slice(cut));
  }

  private checkpoint({ pick, size }: Choice): void {
    const message = at(this.messages, pick);
    if (message === undefined) return;
    const open = message.text.length - message.settled;
    if (open > 0) this.settle(message, message.settled + 1 + (size % open));
  }

  private settle(message: Message, end: number): void {
    const text = message.text.slice(message.settled, end);
    this.store({
      type: "model.chunk",
      payload: { message_id: message.id, offset: message.settled, text },
    });
    message.settled = end;
  }

  private endMessage({ pick }: Choice): void {
    const message = take(this.messages, pick);
    if (message === undefined) return;
    if (message.settled < message.text.length) this.settle(message, message.text.length);
    const payload = { message_id: message.id, length: message.text.length, finish_reason: "stop" };
    this.store({ type: "message.completed", payload });
    this.texts.set(message.id, message.text);
  }

  private startStep({ pick }: Choice): void {
    const again = pick % 4 === 0 ? this.failedSteps.pop() : undefined;
    const step_id = again ?? this.id("stp");
    const parent = this.steps.at(-1);
    this.steps.push(step_id);
    const payload = {
      step_id,
      name: "work",
      ...(parent === undefined ? {} : { parent_step_id: parent }),
    };
    this.store({ type: "step.started", payload, key: `run/${step_id}#0` });
  }

  private endStep({ pick, text }: Choice): void {
    const step_id = this.steps.pop();
    if (step_id === undefined) return;
    for (const message of this.messages.filter((open) => open.step === step_id)) {
      this.endMessage({ op: 0, pick: this.messages.indexOf(message), size: 0, text });
    }
    if (pick % 2 === 0) {
      this.store({ type: "step.completed", payload: { step_id, output: text } });
    } else {
      this.failedSteps.push(step_id);
      const error = { code: "x", message: text, retryable: true };
      this.store({ type: "step.failed", payload: { step_id, error } });
    }
  }

  private tool({ pick, size, text }: Choice): void {
    const id = at(this.calls, size);
    if (id === undefined || pick % 4 === 0) {
      const tool_call_id = this.id("tc");
      this.calls.push(tool_call_id);
      const payload = {
        tool_call_id,
        name: "shell",
        args: { text },
        executor: "client",
        requires_approval: false,
      } as const;
      this.store({ type: "tool_call.created", payload, key: `run/${tool_call_id}#0` });
    } else if (pick % 4 === 1) {
      const status = (["pending", "claimed", "running"] as const)[size % 3] ?? "pending";
      const claim = status === "claimed" ? { claim_id: "clm_1", lease_ms: 1000, by: "alice" } : {};
      this.store({ type: "tool_call.status", payload: { tool_call_id: id, status, ...claim } });
    } else if (pick % 4 === 2) {
      this.store({
        type: "tool_call.completed",
        payload: { tool_call_id: id, result: text },
        reply_to: this.id("cmd"),
      });
    } else {
      const error = { code: "x", message: text, retryable: false };
      this.store({ type: "tool_call.failed", payload: { tool_call_id: id, error } });
    }
  }

  private approve({ pick, size }: Choice): void {
    const id = take(this.approvals, pick);
    if (id === undefined || size % 2 === 0) {
      const approval_id = this.id("apr");
      this.approvals.push(approval_id);
      const rest = {
        description: "",
        risk_level: "low",
        args_hash: "h",
        expires_at: 1,
        default: "deny",
      } as const;
      this.store({
        type: "approval.requested",
        payload: { approval_id, operation: "shell", ...rest },
      });
    } else {
      this.store({ type: "approval.resolved", payload: { approval_id: id, decision: "expired" } });
    }
  }

  private ask({ pick, size, text }: Choice): void {
    const id = take(this.inputs, pick);
    if (size % 3 === 0) {
      this.store({
        type: "input.received",
        payload: { content: text, queued: true },
        reply_to: this.id("cmd"),
        reply_by: "bob",
      });
    } else if (id === undefined) {
      const input_id = this.id("inp");
      this.inputs.push(input_id);
      this.store({ type: "input.requested", payload: { input_id, prompt: text } });
    } else {
      this.store({ type: "input.received", payload: { input_id: id, content: text, by: "bob" } });
    }
  }

  private emit({ pick, size, text }: Choice): void {
    const events: readonly NewEvent[] = [
      { type: "custom", payload: { name: "n", value: text }, key: `run/n#${size}` },
      {
        type: "state.updated",
        payload: { patch: { [text]: size, gone: pick % 2 ? null : { deep: text } } },
      },
      {
        type: "state.updated",
        payload: { state: { $artifact: "art_1", bytes: 1, sha256: "0".repeat(64) } },
      },
      { type: "memory.updated", payload: { key: `k${size % 3}`, value: pick % 2 ? null : text } },
      { type: "memory.updated", payload: { key: "__proto__", value: text } },
      {
        type: "usage.updated",
        payload: {
          model: "__proto__",
          input_tokens: size,
          output_tokens: pick,
          reasoning_tokens: 1,
        },
      },
      {
        type: "artifact.ready",
        payload: {
          artifact_id: "art_1",
          name: "f",
          media_type: "text/plain",
          bytes: size,
          sha256: "0".repeat(64),
        },
      },
    ];
    const event = at(events, pick);
    if (event !== undefined) this.store(event);
  }

  private refuse({ pick }: Choice): void {
    const id = pick % 5 === 0 ? "constructor" : this.id("cmd");
    this.store({
      type: "command.rejected",
      payload: { id, code: "stale", message: "" },
      reply_to: id,
      reply_by: "alice",
    });
  }

  private interrupt(): void {
    this.forget();
    this.paused = true;
    this.store({ type: "run.interrupted", payload: { preserve_context: true } });
  }

  /** Another worker goes on: open steps are done again, open messages outside of them begin anew. */
  private takeOver({ pick }: Choice): void {
    this.forget();
    this.attempt += 1;
    this.store({
      type: "run.resumed",
      payload: { attempt: this.attempt, worker: `w${this.attempt}` },
    });
    const cut = this.steps.splice(0);
    for (const step_id of cut) {
      this.store({ type: "step.superseded", payload: { step_id } });
      const lost = this.events.filter((event) => event.type === "message.started");
      for (const event of lost) {
        if ("step_id" in event && event.step_id === step_id) this.texts.delete(messageId(event));
      }
    }
    const open = this.messages.splice(0);
    for (const message of open.filter((one) => one.step === undefined)) {
      if (pick % 2) this.open({ ...message, text: "", settled: 0 }, pick);
      else this.messages.push(message);
    }
  }

  /** What was shown and not stored is gone. */
  private forget(): void {
    for (const message of this.messages) message.text = message.text.slice(0, message.settled);
  }

  private store(event: NewEvent): void {
    const { type, payload, ...rest } = event;
    this.storeAs(type, payload, rest);
  }

  private storeAs(type: string, payload: unknown, rest: object = {}): void {
    this.seq += 1;
    const envelope = {
      session_id: SESSION,
      run_id: RUN,
      seq: this.seq,
      event_id: `${RUN}.${this.seq}`,
      ts: this.seq,
    };
    this.events.push({ type, ...envelope, ...rest, payload });
  }

  private delta(message: Message, offset: number, text: string): void {
    const event: EphemeralEvent<"model.delta"> = {
      type: "model.delta",
      session_id: SESSION,
      run_id: RUN,
      attempt: this.attempt,
      ts: this.seq,
      payload: { message_id: message.id, offset, text },
    };
    this.events.push(event);
  }

  private id(kind: string): string {
    this.ids += 1;
    return `${kind}_${this.ids}`;
  }
}

function messageId(event: LogEvent): string {
  return event.type === "message.started" && "event_id" in event ? event.payload.message_id : "";
}

function at<T>(list: readonly T[], pick: number): T | undefined {
  return list[pick % Math.max(1, list.length)];
}

function take<T>(list: T[], pick: number): T | undefined {
  return list.length === 0 ? undefined : list.splice(pick % list.length, 1)[0];
}
