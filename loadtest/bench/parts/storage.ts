/** How much of a stream of tokens is stored. */
import type { Sizes } from "../options.ts";
import type { PartReport, Say } from "../report/part.ts";
import type { Stage } from "../stage.ts";

const TOKENS_PER_SECOND = 100;
const RUNS = 10;
const AIM = 30;

export async function storage(stage: Stage, sizes: Sizes, say: Say): Promise<PartReport> {
  await stage.publisher.ask("start", { refs: stage.runs(RUNS) });
  say(`storage: ${RUNS} runs write for ${sizes.storageMs / 1000} s`);
  const found = await stage.publisher.ask("texts", {
    tokensPerSecond: TOKENS_PER_SECOND,
    ms: sizes.storageMs,
  });
  const perThousand = (count: number): number => (count * 1_000) / found.tokens;
  const stored = perThousand(found.stored);
  return {
    title: "What is stored of a stream of tokens",
    how: [
      `${RUNS} runs, one message each, ${TOKENS_PER_SECOND} tokens a second for ${sizes.storageMs / 1000} s through the run writer's text lane, as \`ctx.message()\` writes them; ${(found.characters / found.tokens).toFixed(1)} characters a token. Counted in the log: the message's start, its checkpoints and its end.`,
    ],
    table: {
      columns: [
        "tokens",
        "stored messages",
        "stored, per 1,000 tokens",
        "deltas, per 1,000 tokens",
        "stored bytes a character",
      ],
      rows: [
        [
          `${found.tokens}`,
          `${found.stored}`,
          stored.toFixed(1),
          perThousand(found.deltas).toFixed(0),
          (found.storedBytes / found.characters).toFixed(2),
        ],
      ],
    },
    aims: [
      {
        what: `stored messages per 1,000 tokens at ${TOKENS_PER_SECOND} a second`,
        aim: `under ${AIM}`,
        measured: stored.toFixed(1),
        met: stored < AIM,
      },
    ],
    notes: [],
    raw: found,
  };
}
