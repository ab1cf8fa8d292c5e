/*
 * JSON Merge Patch (RFC 7396), with one rule more: a member named `__proto__` is left out. As an own
 * property it would be harmless here, and a trap for whoever copies the value with plain assignment.
 */

/** The target with the patch applied. Neither is changed; parts that stay the same are shared. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const base = isObject(target) ? target : {};
  const changes = new Map<string, unknown>();
  for (const [name, value] of Object.entries(patch)) {
    if (name === "__proto__") continue;
    if (value === null) {
      if (Object.hasOwn(base, name)) changes.set(name, undefined);
    } else {
      const before = Object.hasOwn(base, name) ? base[name] : undefined;
      const after = mergePatch(before, value);
      if (after !== before) changes.set(name, after);
    }
  }
  if (changes.size === 0) return base;
  const merged: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(base)) {
    if (name !== "__proto__" && !changes.has(name)) merged[name] = value;
    else if (changes.get(name) !== undefined) merged[name] = changes.get(name);
    changes.delete(name);
  }
  for (const [name, value] of changes) merged[name] = value;
  return merged;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
