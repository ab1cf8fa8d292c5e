/**
 * `repo-report`: walks and reads a folder and streams a Markdown report on it.
 *
 * Each section is a step (what was found, stored) and a message (how it reads). A worker that takes the
 * run over skips the steps that are done and the messages that are whole; files are read again only
 * where a later step needs them.
 */
import { stat } from "node:fs/promises";
import { type Agent, AgentError, defineAgent, type RunContext } from "@throughline/worker";
import { z } from "zod";
import { openPacer, type Pacer } from "../pace.ts";
import type { AllowedPath, Roots } from "../roots.ts";
import { gitHistory } from "./git-history.ts";
import { readTexts, type Texts } from "./read-texts.ts";
import * as sections from "./sections.ts";
import { type Walk, walkFolder } from "./walk.ts";

const inputSchema = z.strictObject({
  /** A folder within the allowed roots. */
  path: z.string().min(1).max(4096),
  /** Pause between two pieces of text, in milliseconds. 0 streams as fast as the log takes it. */
  pace_ms: z.number().min(0).max(10_000).default(0),
});

export type RepoReportInput = z.infer<typeof inputSchema>;

export interface RepoReportOutput {
  readonly path: string;
  readonly files: number;
  readonly folders: number;
  readonly bytes: number;
  readonly lines: number;
  readonly languages: Readonly<Record<string, number>>;
  readonly todos: number;
  readonly commits: number;
  readonly truncated: boolean;
}

export interface RepoReportOptions {
  readonly roots: Roots;
  /** Where `git` is looked for, as in PATH. */
  readonly searchPath: string;
}

export function repoReport(options: RepoReportOptions): Agent {
  return defineAgent({
    name: "repo-report",
    description:
      "Walks and reads a folder and streams a Markdown report: languages, sizes, longest files, notes, git history.",
    examples: [{ path: "." }],
    input: (raw) => inputSchema.parse(raw),
    run: (ctx) => report(ctx, options),
  });
}

async function report(
  ctx: RunContext<RepoReportInput>,
  { roots, searchPath }: RepoReportOptions,
): Promise<RepoReportOutput> {
  const at = await roots.find(ctx.input.path);
  if (!(await stat(at.path)).isDirectory()) {
    throw new AgentError("not_a_folder", `${JSON.stringify(ctx.input.path)} is not a folder`);
  }
  const survey = openSurvey(at, ctx.signal);
  const pacer = openPacer(ctx.input.pace_ms, ctx.signal);

  const scan = await ctx.step("scan", async () => sections.foundScan(await survey.walk()));
  await tell(ctx, pacer, sections.renderScan(at.label, scan));
  const languages = await ctx.step("languages", async () =>
    sections.foundLanguages(await survey.texts()),
  );
  await tell(ctx, pacer, sections.renderLanguages(languages));
  const sizes = await ctx.step("sizes", async () => sections.foundSizes(await survey.walk()));
  await tell(ctx, pacer, sections.renderSizes(sizes));
  const longest = await ctx.step("longest-files", async () =>
    sections.foundLongest(await survey.texts()),
  );
  await tell(ctx, pacer, sections.renderLongest(longest));
  const todos = await ctx.step("todos", async () => sections.foundTodos(await survey.texts()));
  await tell(ctx, pacer, sections.renderTodos(todos));
  const history = await ctx.step("git-history", () =>
    gitHistory({ folder: at.path, root: at.root, searchPath, signal: ctx.signal }),
  );
  await tell(ctx, pacer, sections.renderHistory(history));

  return {
    path: at.label,
    files: scan.files,
    folders: scan.folders,
    bytes: scan.bytes,
    lines: languages.lines,
    languages: Object.fromEntries(languages.languages.map((one) => [one.language, one.lines])),
    todos: todos.count,
    commits: history.kind === "history" ? history.total : 0,
    truncated: scan.truncated || languages.truncated,
  };
}

/** What several steps look at is walked and read once an attempt, by the first that needs it. */
function openSurvey(
  at: AllowedPath,
  signal: AbortSignal,
): { walk(): Promise<Walk>; texts(): Promise<Texts> } {
  let walk: Promise<Walk> | undefined;
  let texts: Promise<Texts> | undefined;
  const walked = (): Promise<Walk> => (walk ??= walkFolder(at.path, signal));
  return {
    walk: walked,
    texts: () => (texts ??= walked().then(({ files }) => readTexts(at.path, files, signal))),
  };
}

/** A word at a time, as a model would. */
async function tell(ctx: RunContext, pacer: Pacer, text: string): Promise<void> {
  const message = ctx.message();
  if (!message.stored) {
    for (const piece of text.match(/\s*\S+\s*/g) ?? [text]) {
      await pacer.next();
      await message.write(piece);
    }
  }
  await message.end();
}
