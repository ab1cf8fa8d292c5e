/** The report's sections: what each step found (small, JSON) and how it reads as Markdown. Pure. */
import type { History } from "./git-history.ts";
import { type LanguageShare, languageShares } from "./languages.ts";
import type { Texts, TextFile, Todo } from "./read-texts.ts";
import type { FileEntry, Walk } from "./walk.ts";

const TOP = 10;
const TOP_TODOS = 15;

export interface ScanFound {
  readonly files: number;
  readonly folders: number;
  readonly bytes: number;
  readonly skipped: number;
  readonly truncated: boolean;
}

export interface LanguagesFound {
  readonly languages: readonly LanguageShare[];
  readonly lines: number;
  readonly textFiles: number;
  readonly binary: number;
  readonly huge: number;
  readonly truncated: boolean;
}

export interface SizesFound {
  readonly largest: readonly FileEntry[];
  readonly folders: readonly FileEntry[];
}

export interface TodosFound {
  readonly count: number;
  readonly first: readonly Todo[];
}

export function foundScan(walk: Walk): ScanFound {
  return {
    files: walk.files.length,
    folders: walk.folders,
    bytes: walk.files.reduce((sum, file) => sum + file.bytes, 0),
    skipped: walk.skipped,
    truncated: walk.truncated,
  };
}

export function foundLanguages(texts: Texts): LanguagesFound {
  return {
    languages: languageShares(texts.files),
    lines: texts.files.reduce((sum, file) => sum + file.lines, 0),
    textFiles: texts.files.length,
    binary: texts.binary,
    huge: texts.huge,
    truncated: texts.truncated,
  };
}

/** The largest files, and the top-level folders by what lies in them. */
export function foundSizes(walk: Walk): SizesFound {
  const folders = new Map<string, number>();
  for (const file of walk.files) {
    const slash = file.path.indexOf("/");
    const folder = slash === -1 ? "." : file.path.slice(0, slash);
    folders.set(folder, (folders.get(folder) ?? 0) + file.bytes);
  }
  return {
    largest: top(walk.files, (file) => file.bytes),
    folders: top(
      [...folders].map(([path, bytes]) => ({ path, bytes })),
      (folder) => folder.bytes,
    ),
  };
}

export function foundLongest(texts: Texts): readonly TextFile[] {
  return top(texts.files, (file) => file.lines);
}

export function foundTodos(texts: Texts): TodosFound {
  return { count: texts.todoCount, first: texts.todos.slice(0, TOP_TODOS) };
}

function top<T extends { readonly path: string }>(all: readonly T[], by: (one: T) => number): T[] {
  return all.toSorted((a, b) => by(b) - by(a) || (a.path < b.path ? -1 : 1)).slice(0, TOP);
}

export function renderScan(label: string, found: ScanFound): string {
  const more = found.truncated
    ? "\n\nThe folder holds more than is looked at here; figures are a lower bound."
    : "";
  return `# Report on ${code(label)}\n\n${plural(found.files, "file")} in ${plural(found.folders, "folder")}, ${bytes(found.bytes)}. ${plural(found.skipped, "entry", "entries")} left out (version control, installed packages, links, unreadable).${more}\n\n`;
}

export function renderLanguages(found: LanguagesFound): string {
  const rows = found.languages.map((one) => [
    one.language,
    String(one.files),
    String(one.lines),
    bytes(one.bytes),
    percent(one.lines, found.lines),
  ]);
  const rest = `${plural(found.lines, "line")} in ${plural(found.textFiles, "text file")}; ${plural(found.binary, "binary file")} and ${plural(found.huge, "very large file")} not read.`;
  return `## Languages\n\n${table(["Language", "Files", "Lines", "Size", "Share"], rows)}\n${rest}\n\n`;
}

export function renderSizes(found: SizesFound): string {
  const row = (one: FileEntry): string[] => [code(one.path), bytes(one.bytes)];
  return `## Sizes\n\n${table(["Folder", "Size"], found.folders.map(row))}\n${table(["Largest file", "Size"], found.largest.map(row))}\n`;
}

export function renderLongest(found: readonly TextFile[]): string {
  return `## Longest files\n\n${table(
    ["File", "Lines"],
    found.map((file) => [code(file.path), String(file.lines)]),
  )}\n`;
}

export function renderTodos(found: TodosFound): string {
  if (found.count === 0) return "## Notes left in the code\n\nNo TODO, FIXME, HACK or XXX.\n\n";
  const lines = found.first.map(
    (todo) =>
      `* ${code(`${todo.path}:${todo.line}`)} ${todo.tag}${todo.text === "" ? "" : ` ${plain(todo.text)}`}`,
  );
  const more = found.count - found.first.length;
  return `## Notes left in the code\n\n${plural(found.count, "note")}.\n\n${lines.join("\n")}\n${more > 0 ? `* … and ${more} more\n` : ""}\n`;
}

export function renderHistory(found: History): string {
  if (found.kind === "none") return `## Recent history\n\nNone: ${found.why}.\n`;
  const lines = found.commits.map(
    (commit) =>
      `* ${commit.date} ${code(commit.id)} ${plain(commit.subject)} (${plain(commit.author)})`,
  );
  return `## Recent history\n\n${plural(found.total, "commit")}, the latest ${found.commits.length}:\n\n${lines.join("\n")}\n`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(" | ")} |\n`;
  return line(head) + line(head.map(() => "---")) + rows.map(line).join("");
}

/** A file's name is untrusted: whatever is in it, it stays one cell and one code span. */
function code(text: string): string {
  const name = oneLine(text).replaceAll("`", "'").replaceAll("|", "\\|");
  return `\`${name}\``;
}

function plain(text: string): string {
  return oneLine(text).replace(/[\\`*_[\]<>|]/g, (character) => `\\${character}`);
}

function oneLine(text: string): string {
  // oxlint-disable-next-line no-control-regex -- control characters are what is taken out
  return text.replace(/[\u0000-\u001f\u007f\u2028\u2029]+/g, " ");
}

function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = count / 1024;
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${value.toFixed(1)} ${units[unit] ?? "TiB"}`;
}

function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

function percent(part: number, whole: number): string {
  return whole === 0 ? "0 %" : `${((100 * part) / whole).toFixed(1)} %`;
}
