import type { TextFile } from "./read-texts.ts";

export interface LanguageShare {
  readonly language: string;
  readonly files: number;
  readonly lines: number;
  readonly bytes: number;
}

const BY_EXTENSION: Readonly<Record<string, string>> = {
  c: "C",
  h: "C",
  cc: "C++",
  cpp: "C++",
  hpp: "C++",
  cs: "C#",
  css: "CSS",
  scss: "CSS",
  less: "CSS",
  dart: "Dart",
  ex: "Elixir",
  exs: "Elixir",
  erl: "Erlang",
  go: "Go",
  gradle: "Gradle",
  hs: "Haskell",
  html: "HTML",
  htm: "HTML",
  java: "Java",
  js: "JavaScript",
  cjs: "JavaScript",
  mjs: "JavaScript",
  jsx: "JavaScript",
  json: "JSON",
  jsonl: "JSON",
  kt: "Kotlin",
  lua: "Lua",
  md: "Markdown",
  mdx: "Markdown",
  php: "PHP",
  pl: "Perl",
  proto: "Protocol Buffers",
  py: "Python",
  r: "R",
  rb: "Ruby",
  rs: "Rust",
  rst: "reStructuredText",
  scala: "Scala",
  sh: "Shell",
  bash: "Shell",
  zsh: "Shell",
  sql: "SQL",
  svelte: "Svelte",
  svg: "SVG",
  swift: "Swift",
  tf: "Terraform",
  toml: "TOML",
  ts: "TypeScript",
  mts: "TypeScript",
  cts: "TypeScript",
  tsx: "TypeScript",
  tpl: "Template",
  txt: "Plain text",
  vue: "Vue",
  xml: "XML",
  yaml: "YAML",
  yml: "YAML",
  zig: "Zig",
};

const BY_NAME: Readonly<Record<string, string>> = {
  dockerfile: "Dockerfile",
  makefile: "Makefile",
  jenkinsfile: "Groovy",
  gemfile: "Ruby",
  rakefile: "Ruby",
  license: "Plain text",
  readme: "Plain text",
};

/** By extension, else by name, else "Other". */
function languageOf(path: string): string {
  const name = (path.split("/").at(-1) ?? path).toLowerCase();
  const dot = name.lastIndexOf(".");
  const byExtension = dot > 0 ? BY_EXTENSION[name.slice(dot + 1)] : undefined;
  return byExtension ?? BY_NAME[name] ?? "Other";
}

/** Most lines first. */
export function languageShares(files: readonly TextFile[]): LanguageShare[] {
  const shares = new Map<string, { files: number; lines: number; bytes: number }>();
  for (const file of files) {
    const language = languageOf(file.path);
    const share = shares.get(language) ?? { files: 0, lines: 0, bytes: 0 };
    share.files++;
    share.lines += file.lines;
    share.bytes += file.bytes;
    shares.set(language, share);
  }
  return [...shares]
    .map(([language, share]) => ({ language, ...share }))
    .sort((a, b) => b.lines - a.lines || (a.language < b.language ? -1 : 1));
}
