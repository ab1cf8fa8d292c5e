import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { initialRunState, messageText, reduce, type RunState } from "../src/index.ts";
import { runStateSchema } from "../src/schemas.ts";
import { logs, type LogEvent } from "./log.ts";
import { seed } from "./seed.ts";

const RUNS = { seed, numRuns: 300 };

const reduceAll = (
  events: readonly LogEvent[],
  from: RunState = initialRunState("run_1"),
): RunState => events.reduce(reduce, from);

const isEphemeral = (event: LogEvent): boolean => !("seq" in event);

/** As after the next chunk or barrier. */
const settled = (state: RunState): RunState => ({
  ...state,
  messages: state.messages.map((message) => ({ ...message, live: "" })),
});

const viaJson = (state: RunState): RunState => JSON.parse(JSON.stringify(state));

/** Loses, doubles and misplaces ephemeral events; durable ones keep their order. */
const disturbed = (events: readonly LogEvent[]): fc.Arbitrary<LogEvent[]> =>
  fc
    .array(fc.record({ copies: fc.nat({ max: 2 }), shift: fc.integer({ min: -40, max: 40 }) }), {
      minLength: events.length,
      maxLength: events.length,
    })
    .map((fates) => {
      const placed = events.flatMap((event, index) => {
        const { copies, shift } = fates[index] ?? { copies: 1, shift: 0 };
        if (!isEphemeral(event)) return [{ event, place: index }];
        // The halves keep a misplaced one from tying with a durable one.
        return Array.from({ length: copies }, (_, copy) => ({
          event,
          place: index + shift * copy + 0.5,
        }));
      });
      return placed.sort((a, b) => a.place - b.place).map(({ event }) => event);
    });

function freeze(value: unknown): void {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return;
  Object.freeze(value);
  for (const member of Object.values(value)) freeze(member);
}

describe("reducer, over random logs", () => {
  it("[RED1] [INV6] goes on from a snapshot as from the log", () => {
    fc.assert(
      fc.property(logs(), fc.nat(), ({ events }, at) => {
        const cut = at % (events.length + 1);
        const snapshot = viaJson(reduceAll(events.slice(0, cut)));
        expect(reduceAll(events.slice(cut), snapshot)).toStrictEqual(reduceAll(events));
      }),
      RUNS,
    );
  });

  it("[RED2] [INV6] a state is the same after a round trip through JSON, and fits its schema", () => {
    fc.assert(
      fc.property(logs(), ({ events }) => {
        const state = reduceAll(events);
        expect(viaJson(state)).toStrictEqual(state);
        expect(runStateSchema.strict().parse(state)).toStrictEqual(state);
      }),
      RUNS,
    );
  });

  it("[RED3] [INV6] an event that was seen changes nothing", () => {
    fc.assert(
      fc.property(logs(), fc.nat(), ({ events }, pick) => {
        let state = initialRunState("run_1");
        const seen: LogEvent[] = [];
        for (const event of events) {
          state = reduce(state, event);
          if (!isEphemeral(event)) seen.push(event);
          for (const old of [event, seen[pick % seen.length]]) {
            if (old !== undefined && reduce(state, old) !== state) {
              expect.unreachable(`${old.type} changed something the second time`);
            }
          }
        }
      }),
      RUNS,
    );
  });

  it("[RED4] loss, doubling and misplacing of deltas leaves no trace in a finished run", () => {
    const cases = logs({ complete: true }).chain((log) =>
      fc.tuple(fc.constant(log), disturbed(log.events)),
    );
    fc.assert(
      fc.property(cases, ([{ events }, others]) => {
        expect(reduceAll(others)).toStrictEqual(reduceAll(events));
      }),
      RUNS,
    );
  });

  it("[RED4] loss, doubling and misplacing of deltas touches only what is live in a run that goes on", () => {
    const cases = logs().chain((log) => fc.tuple(fc.constant(log), disturbed(log.events)));
    fc.assert(
      fc.property(cases, ([{ events }, others]) => {
        const durable = reduceAll(events.filter((event) => !isEphemeral(event)));
        expect(settled(reduceAll(others))).toStrictEqual(durable);
      }),
      RUNS,
    );
  });

  it("[RED5] a completed message's text is what was written, in UTF-16 code units", () => {
    fc.assert(
      fc.property(logs({ complete: true }), ({ events, texts }) => {
        const completed = reduceAll(events).messages.filter(
          (message) => message.status === "completed",
        );
        expect(
          new Map(completed.map((message) => [message.message_id, messageText(message)])),
        ).toEqual(texts);
      }),
      RUNS,
    );
  });

  it("[RED5] undisturbed deltas show at once all that was written", () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: "binary", minLength: 1 }), { minLength: 1 }),
        (parts) => {
          const start = [
            {
              type: "run.queued",
              seq: 1,
              ts: 1,
              payload: { agent: "a", input: 0, by: "u", deadline: 1 },
            },
            { type: "run.started", seq: 2, ts: 1, payload: { attempt: 1, worker: "w" } },
            {
              type: "message.started",
              seq: 3,
              ts: 1,
              payload: { message_id: "m", role: "assistant", channel: "text" },
            },
          ].map((event) => ({
            session_id: "s",
            run_id: "run_1",
            event_id: `run_1.${event.seq}`,
            ...event,
          }));
          let offset = 0;
          let state = reduceAll(start);
          for (const text of parts) {
            const payload = { message_id: "m", offset, text };
            state = reduce(state, {
              type: "model.delta",
              session_id: "s",
              run_id: "run_1",
              attempt: 1,
              ts: 1,
              payload,
            });
            offset += text.length;
            expect(state.messages.map(messageText)).toEqual([parts.join("").slice(0, offset)]);
          }
        },
      ),
      RUNS,
    );
  });

  it("[RED6] changes nothing in place, and shares what stays the same", () => {
    fc.assert(
      fc.property(logs(), ({ events }) => {
        let state = initialRunState("run_1");
        for (const event of events) {
          freeze(state);
          freeze(event);
          const next = reduce(state, event);
          if (event.type === "model.delta" || event.type === "model.chunk") {
            const copied = Object.keys(next).filter(
              (name) => Reflect.get(next, name) !== Reflect.get(state, name),
            );
            const touched = next.messages.filter((message, i) => message !== state.messages[i]);
            const mayChange = ["messages", "seq", "updated_at"];
            if (touched.length > 1 || copied.some((name) => !mayChange.includes(name))) {
              expect.unreachable(
                `${event.type} copied ${copied.join()}, ${touched.length} messages`,
              );
            }
          }
          state = next;
        }
      }),
      RUNS,
    );
  });
});
