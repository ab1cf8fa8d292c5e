import type { z } from "zod";

/** One variable that is set wrongly. */
export interface Problem {
  name: string;
  message: string;
}

/** All that is wrong with an environment, at once: nobody likes to start a service five times. */
export class ConfigError extends Error {
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[]) {
    const title =
      problems.length === 1 ? "a setting is wrong" : `${problems.length} settings are wrong`;
    super([`${title}:`, ...problems.map(({ name, message }) => `  ${name} ${message}`)].join("\n"));
    this.name = "ConfigError";
    this.problems = problems;
  }
}

/**
 * Reads a service's settings. A variable set to the empty string counts as not set, as shells and charts
 * write it when they mean that.
 *
 * @throws {ConfigError} naming every variable that is wrong
 */
export function loadConfig<Schema extends z.ZodObject>(
  schema: Schema,
  env: Readonly<Record<string, string | undefined>>,
): z.output<Schema> {
  const given = Object.fromEntries(
    Object.keys(schema.shape).map((name) => [name, env[name] || undefined]),
  );
  const result = schema.safeParse(given);
  if (result.success) return result.data;
  throw new ConfigError(
    result.error.issues.map(({ path, message }) => {
      const name = String(path[0] ?? "settings");
      return { name, message: `${shown(name, given[name])}${message}` };
    }),
  );
}

/** The value, for the message; not where it may hold a secret. */
function shown(name: string, value: string | undefined): string {
  if (value === undefined || /TOKEN|SECRET|PASSWORD|KEY|URL/.test(name)) return "";
  return `is ${JSON.stringify(value)} and `;
}
