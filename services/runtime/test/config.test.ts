import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { removeDir, tempDir } from "@throughline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readConfig } from "../src/config.ts";

let folder: string;
beforeAll(() => {
  folder = tempDir("config");
});
afterAll(() => removeDir(folder));

describe("settings of llm", () => {
  it.each<[string, Record<string, string>]>([
    ["nothing", {}],
    ["a key alone", { OPENAI_API_KEY: "k" }],
    ["a model alone", { OPENAI_MODEL: "m" }],
    ["empty values", { OPENAI_MODEL: "m", OPENAI_API_KEY: "", OPENAI_BASE_URL: "" }],
  ])("[LLM12] do not offer it with %s", (_, env) => {
    expect(readConfig(env).endpoint).toBeUndefined();
  });

  it("[LLM12] offer it with a model and a key, or a model and a server", () => {
    expect(readConfig({ OPENAI_MODEL: "m", OPENAI_API_KEY: "k" }).endpoint).toEqual({
      baseUrl: "https://api.openai.com/v1",
      apiKey: "k",
      model: "m",
    });
    expect(
      readConfig({ OPENAI_MODEL: "m", OPENAI_BASE_URL: "http://127.0.0.1:8000/v1" }).endpoint,
    ).toEqual({ baseUrl: "http://127.0.0.1:8000/v1", apiKey: undefined, model: "m" });
  });

  it("[LLM12] take the key from a file", () => {
    const file = join(folder, "key");
    writeFileSync(file, "sk-1\n");
    expect(readConfig({ OPENAI_MODEL: "m", OPENAI_API_KEY_FILE: file }).endpoint?.apiKey).toBe(
      "sk-1",
    );
  });

  it.each<[Record<string, string>, RegExp]>([
    [{ OPENAI_API_KEY_FILE: "/nowhere/key" }, /OPENAI_API_KEY_FILE .*ENOENT/],
    [{ OPENAI_API_KEY_FILE: "/dev/null" }, /OPENAI_API_KEY_FILE is empty/],
    [{ OPENAI_API_KEY: "a", OPENAI_API_KEY_FILE: "/b" }, /only one/],
    [{ OPENAI_BASE_URL: "api.example.com" }, /OPENAI_BASE_URL must be/],
    [{ OPENAI_BASE_URL: "https://me:secret@api.example.com" }, /OPENAI_BASE_URL must be/],
    [{ TL_LLM_MAX_ROUNDS: "0" }, /TL_LLM_MAX_ROUNDS/],
  ])("[PROC1] that are wrong are named: %j", (env, message) => {
    expect(() => readConfig(env)).toThrow(message);
    expect(() => readConfig(env)).not.toThrow(/secret/);
  });
});
