/** Commands on their way, over links that break. */
import type { Command } from "@throughline/protocol";
import { eventually } from "@throughline/testkit";
import { describe, expect, test } from "vitest";
import { ClientClosed, CommandRejected, OutboxFull } from "../src/index.ts";
import { stage } from "./stage.ts";

describe("delivery", () => {
  test("[CLI20] commands given without a connection go out in order when there is one", async () => {
    const { edge, client } = await stage();
    let open = false;
    edge.faults.refuse = () => (open ? undefined : 503);
    const sender = client();
    const sent = ["a", "b", "c"].map((id) => sender.createSession({}, { id }));
    await eventually(() => edge.requests.length >= 2);
    open = true;
    expect(await Promise.all(sent)).toEqual(["ses_a", "ses_b", "ses_c"]);
    expect(edge.sent("session.create").map(({ id }) => id)).toEqual(["a", "b", "c"]);
  });

  test("[CLI20] the link dies between command and answer: the same command goes to the next node, once in effect", async () => {
    const { edges, log, client } = await stage(2);
    const [first, second] = edges;
    if (first === undefined || second === undefined) throw new Error("two nodes");
    first.faults.command = (command, connection) => {
      if (command.type !== "run.start") return false;
      log.commands.set(command.id, JSON.stringify(command));
      connection.cut();
      return true;
    };
    const sender = client();
    const session = await sender.createSession();
    const answer = await sender.command({
      type: "run.start",
      session_id: session,
      payload: { agent: "test", input: { n: 1 } },
    });
    expect(answer.duplicate).toBe(true);
    expect(second.sent("run.start")).toEqual(first.sent("run.start"));
  });

  test("[CLI20] what is answered is not sent again", async () => {
    const { edge, client } = await stage();
    const sender = client();
    await sender.createSession({}, { id: "a" });
    edge.cut();
    await sender.createSession({}, { id: "b" });
    expect(edge.sent("session.create").map(({ id }) => id)).toEqual(["a", "b"]);
  });
});

describe("refusals", () => {
  const refuseWith = (code: string, extra: object = {}) => ({
    type: "command.rejected",
    code,
    message: "no",
    ...extra,
  });

  test("[CLI21] a final refusal rejects with its code and what stands instead", async () => {
    const { edge, client } = await stage();
    edge.faults.command = ({ id, type }, connection) => {
      if (type !== "run.cancel") return false;
      connection.send({ ...refuseWith("run_ended", { current: "completed" }), id });
      return true;
    };
    const sent = client().command({
      type: "run.cancel",
      session_id: "ses_1",
      run_id: "run_1",
      payload: {},
    });
    await expect(sent).rejects.toBeInstanceOf(CommandRejected);
    await expect(sent).rejects.toMatchObject({ code: "run_ended", current: "completed" });
  });

  test("[CLI21] one that may pass is tried again, by either kind of frame", async () => {
    const { edge, client } = await stage();
    let times = 0;
    edge.faults.command = ({ id, type }, connection) => {
      if (type !== "session.create" || ++times > 4) return false;
      const frame = refuseWith("unavailable", { retry_after_ms: 1 });
      connection.send({ ...frame, type: times % 2 === 0 ? "error" : "command.rejected", id });
      return true;
    };
    expect(await client().createSession({}, { id: "a" })).toBe("ses_a");
    expect(times).toBe(5);
  });

  test("[CLI21] the eighth is final", async () => {
    const { edge, client } = await stage();
    edge.faults.command = ({ id, type }, connection) => {
      if (type === "session.create") connection.send({ ...refuseWith("overloaded"), id });
      return true;
    };
    await expect(client().createSession()).rejects.toMatchObject({ code: "overloaded" });
    expect(edge.sent("session.create").length).toBe(8);
  });

  test("[CLI22] a command over the server's limit is refused here", async () => {
    const { edge, client } = await stage(1, { maxFrameBytes: 2_000 });
    const sender = client();
    await sender.createSession();
    // Each of these characters is two bytes on the wire.
    const start = (length: number): Promise<unknown> =>
      sender.command({
        type: "run.start",
        session_id: "ses_1",
        payload: { agent: "test", input: "ä".repeat(length) },
      });
    await expect(start(1_000)).rejects.toMatchObject({ code: "too_large" });
    await start(900);
    expect(edge.sent("run.start").length).toBe(1);
  });

  test("[CLI22] after 1009 the largest is given up and the rest is sent again", async () => {
    const { edge, client } = await stage();
    let closed = false;
    edge.faults.command = ({ type, id }, connection) => {
      if (type !== "session.create" || closed) return false;
      if (id === "large") {
        closed = true;
        connection.close(1009);
      }
      return true;
    };
    const sender = client();
    const small = sender.createSession({}, { id: "small" });
    const large = sender.createSession({ title: "x".repeat(200) }, { id: "large" });
    await expect(large).rejects.toMatchObject({ code: "too_large" });
    expect(await small).toBe("ses_small");
    expect(edge.sent("session.create").map(({ id }) => id)).toEqual(["small", "large", "small"]);
  });
});

describe("bounds", () => {
  test("[CLI23] more than 1,000 without an answer are refused at once", async () => {
    const { edge, client } = await stage();
    edge.faults.refuse = () => 503;
    const sender = client();
    const waiting = Array.from({ length: 1_000 }, () => sender.createSession());
    await expect(sender.createSession()).rejects.toBeInstanceOf(OutboxFull);
    sender.close();
    const outcomes = await Promise.allSettled(waiting);
    expect(outcomes.every(({ status }) => status === "rejected")).toBe(true);
  });

  test("[CLI23] at most 32 are on the wire, and all go out in their order", async () => {
    const { edge, client } = await stage();
    const unanswered: Command[] = [];
    let most = 0;
    edge.faults.command = (command, connection) => {
      unanswered.push(command);
      most = Math.max(most, unanswered.length);
      setImmediate(() => {
        const oldest = unanswered.shift();
        if (oldest !== undefined) connection.answer(oldest);
      });
      return true;
    };
    const sender = client();
    const ids = Array.from({ length: 200 }, (_, n) => `c${n}`);
    await Promise.all(ids.map((id) => sender.createSession({}, { id })));
    expect(edge.sent("session.create").map(({ id }) => id)).toEqual(ids);
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(32);
  });

  test("[CLI24] an aborted signal gives up the waiting", async () => {
    const { edge, client } = await stage();
    edge.faults.command = () => true;
    const controller = new AbortController();
    const sender = client();
    const sent = sender.createSession({}, { id: "a", signal: controller.signal });
    await eventually(() => edge.sent("session.create").length === 1);
    controller.abort(new Error("no longer wanted"));
    await expect(sent).rejects.toThrow("no longer wanted");
    await expect(sender.createSession({}, { signal: controller.signal })).rejects.toThrow(
      "no longer",
    );
    edge.faults.command = () => false;
    // Its id is free again, and nothing of it is sent after a reconnect.
    edge.cut();
    expect(await sender.createSession({}, { id: "b" })).toBe("ses_b");
    expect(edge.sent("session.create").map(({ id }) => id)).toEqual(["a", "b"]);
  });

  test("[CLI25] closing rejects what has no answer, and what comes later", async () => {
    const { edge, client } = await stage();
    edge.faults.command = () => true;
    const sender = client();
    const sent = sender.createSession();
    await eventually(() => edge.sent("session.create").length === 1);
    sender.close();
    await expect(sent).rejects.toBeInstanceOf(ClientClosed);
    await expect(sender.createSession()).rejects.toMatchObject({ closed: { kind: "stopped" } });
  });

  test("two commands under one id at the same time are a mistake of the caller", async () => {
    const { client } = await stage();
    const sender = client();
    const first = sender.createSession({}, { id: "a" });
    await expect(sender.createSession({}, { id: "a" })).rejects.toThrow("on its way already");
    await first;
  });
});
