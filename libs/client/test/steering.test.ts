/** Commands whose methods wait for what the run makes of them. */
import type { CommandOf, NewEvent } from "@throughline/protocol";
import { eventually } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { CommandRejected, FollowClosed, type RunHandle } from "../src/index.ts";
import { queued } from "./edge-double.ts";
import { stage, take, type Stage } from "./stage.ts";

const SESSION = "ses_s";
const RUN = "run_s";
const HASH = "a".repeat(64);

const started: NewEvent = { type: "run.started", payload: { attempt: 1, worker: "w" } };
const asked: NewEvent = {
  type: "approval.requested",
  payload: {
    approval_id: "apr_1",
    operation: "shell",
    description: "npm test",
    risk_level: "low",
    args_hash: HASH,
    expires_at: 1_864_532_800_000,
    default: "deny",
  },
};

/** A run that is under way, and a handle that has seen it. */
async function underWay(...events: NewEvent[]): Promise<Stage & { run: RunHandle }> {
  const staged = await stage();
  const { log, client } = staged;
  for (const event of [queued(), started, ...events]) log.append(SESSION, RUN, event);
  const run = client().follow({ session: SESSION, run: RUN });
  await eventually(() => run.state.seq === 2 + events.length);
  return { ...staged, run };
}

const allowed = (reply_to: string): NewEvent => ({
  type: "approval.resolved",
  reply_to,
  payload: { approval_id: "apr_1", decision: "allow", by: "ann" },
});

describe("effects", () => {
  test("[CLI60] [CLI63] an approval is bound to its request, and resolves with its effect, not with its answer", async () => {
    const { edge, log, run } = await underWay(asked);
    let isDone = false;
    const approved = run.approve("apr_1", { reason: "fine" }).then(() => (isDone = true));
    await eventually(() => edge.sent("approval.respond").length === 1);
    const [sent] = edge.sent("approval.respond");
    expect(sent).toMatchObject({
      reply_to: `${RUN}.3`,
      payload: { approval_id: "apr_1", decision: "allow", args_hash: HASH, reason: "fine" },
    });
    // Somebody else's event, and another round trip on the same link: still nothing.
    log.append(SESSION, RUN, {
      type: "custom",
      reply_to: "other",
      payload: { name: "x", value: 1 },
    });
    await eventually(() => run.state.seq === 4);
    expect(isDone).toBe(false);
    log.append(SESSION, RUN, allowed(sent?.id ?? ""));
    await approved;
    expect(run.state.approvals[0]).toMatchObject({ status: "resolved", decision: "allow" });
    expect(edge.complaints).toEqual([]);
  });

  test("[CLI60] an effect that comes before the command's answer, and one that comes after the link was lost", async () => {
    const { edge, log, run } = await underWay(asked);
    edge.faults.command = (command, connection) => {
      if (command.type === "approval.respond") {
        log.append(SESSION, RUN, allowed(command.id));
        connection.answer(command);
        return true;
      }
      if (command.type !== "run.interrupt" || log.commands.has(command.id)) return false;
      log.commands.set(command.id, JSON.stringify(command));
      connection.cut();
      log.append(SESSION, RUN, {
        type: "run.interrupted",
        reply_to: command.id,
        payload: { reason: "wait", preserve_context: true, by: "ann" },
      });
      return true;
    };
    await run.approve("apr_1");
    await run.interrupt({ reason: "wait" });
    expect(run.state.status).toBe("interrupted");
    expect(edge.sent("run.interrupt")).toHaveLength(2);
    expect(edge.complaints).toEqual([]);
  });

  test("[CLI60] one that is only seen in a snapshot", async () => {
    const { edge, log, run } = await underWay(asked);
    const approving = run.approve("apr_1");
    await eventually(() => edge.sent("approval.respond").length === 1);
    const id = edge.sent("approval.respond")[0]?.id ?? "";
    const state = { ...run.state, seq: 4, applied: { [`${id} ann`]: 4 } };
    edge.faults.subscribed = () => ({
      recovered: false,
      mode: "snapshot",
      reason: "cursor_expired",
      after: log.stored.length,
      frames: (subscription_id) => [
        { type: "snapshot", subscription_id, run_id: RUN, state, cursor: "4-4-x" },
      ],
    });
    edge.cut();
    await approving;
  });

  test("[CLI61] the run's verdict rejects, with the decision that stands", async () => {
    const { edge, log, run } = await underWay(asked);
    const denied = run.deny("apr_1");
    await eventually(() => edge.sent("approval.respond").length === 1);
    const id = edge.sent("approval.respond")[0]?.id ?? "";
    const current = { decision: "allow", by: "bob" };
    log.append(SESSION, RUN, {
      type: "command.rejected",
      reply_to: id,
      payload: { id, code: "already_resolved", message: "bob was first", current },
    });
    const error = await denied.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CommandRejected);
    expect(error).toMatchObject({ code: "already_resolved", id, current });
  });

  test("[CLI62] the run's end answers what is open: a cancellation is done, all else came too late", async () => {
    const { edge, log, run } = await underWay();
    const all = [run.cancel("enough"), run.continue("and then?"), run.respond("inp_1", 1)];
    await eventually(() => edge.sent("input.respond").length === 1);
    // What is closed on the way names the cancellation as well, and is not what it asks for.
    const reply_to = edge.sent("run.cancel")[0]?.id ?? "";
    log.append(SESSION, RUN, { type: "custom", reply_to, payload: { name: "closing", value: 1 } });
    await eventually(() => run.state.seq === 3);
    const settled = Promise.allSettled(all);
    log.append(SESSION, RUN, { type: "run.completed", payload: { output: 1 } });
    expect(await settled).toMatchObject([
      { status: "fulfilled" },
      { status: "rejected", reason: { code: "run_ended" } },
      { status: "rejected", reason: { code: "run_ended" } },
    ]);
  });

  test("[CLI64] a command of an earlier life: its effect is in the state", async () => {
    const { log, client, run } = await underWay(asked, allowed("cmd_earlier"));
    const payload = { approval_id: "apr_1", decision: "allow", args_hash: HASH } as const;
    const earlier: CommandOf<"approval.respond"> = {
      type: "approval.respond",
      id: "cmd_earlier",
      session_id: SESSION,
      run_id: RUN,
      reply_to: `${RUN}.3`,
      payload,
    };
    await client().command(earlier, { id: "cmd_earlier" });
    expect(log.commands.size).toBe(1);
    await run.approve("apr_1", { id: "cmd_earlier" });
  });
});

describe("nobody waits for ever", () => {
  test("[CLI65] in a loop that is far behind its own flow, that the command is stored is enough", async () => {
    const { log, client } = await stage();
    log.fill(SESSION, RUN, 64);
    const run = client().follow({ session: SESSION, run: RUN, buffer: { items: 4 } });
    let interrupted = false;
    for await (const event of run) {
      if (!("seq" in event)) continue;
      if (event.seq === 2) {
        await run.interrupt();
        interrupted = true;
      }
      if (event.seq === 65) break;
    }
    expect(interrupted).toBe(true);
  });

  test("[CLI65] a closed handle and an aborted signal end the waiting", async () => {
    const { edge, run } = await underWay();
    const abort = new AbortController();
    const given = run.interrupt({ signal: abort.signal }).catch((error: unknown) => error);
    const waiting = run.continue("x").catch((error: unknown) => error);
    await eventually(() => edge.sent("run.continue").length === 1);
    abort.abort(new Error("not that important"));
    expect(await given).toMatchObject({ message: "not that important" });
    run.close();
    expect(await waiting).toBeInstanceOf(FollowClosed);
  });
});

describe("further", () => {
  test("[CLI66] a finished run is begun again, and the new one is followed", async () => {
    const { edge, log, run } = await underWay({ type: "run.completed", payload: { output: 1 } });
    edge.faults.command = (command, connection) => {
      if (command.type !== "run.retry") return false;
      log.append(SESSION, "run_again", queued());
      const { id } = command;
      connection.send({ type: "command.accepted", id, run_id: "run_again", duplicate: false });
      return true;
    };
    const again = await run.retry({ fromStep: "stp_2" });
    expect(edge.sent("run.retry")[0]).toMatchObject({ payload: { from_step: "stp_2" } });
    expect(again.run_id).toBe("run_again");
    expect(await take(again, 1)).toMatchObject([{ type: "run.queued", run_id: "run_again" }]);
  });

  test("[CLI60] through a session's handle, of whichever run", async () => {
    const { edge, log, client } = await stage();
    for (const run of ["run_a", "run_b"])
      for (const event of [queued(), started, asked]) log.append(SESSION, run, event);
    const all = client().follow({ session: SESSION });
    await eventually(() => all.state.runs["run_b"]?.seq === 3);
    const approving = all.run("run_b").approve("apr_1");
    await eventually(() => edge.sent("approval.respond").length === 1);
    const [sent] = edge.sent("approval.respond");
    expect(sent).toMatchObject({ run_id: "run_b", reply_to: "run_b.3" });
    log.append(SESSION, "run_a", allowed("other"));
    log.append(SESSION, "run_b", allowed(sent?.id ?? ""));
    await approving;
    expect(all.state.runs["run_b"]?.approvals[0]?.decision).toBe("allow");
  });
});
