/*
 * Lists of things with an id, and records. The newest are the busy ones, so they are looked up from the end. A list
 * is copied when one of its items changes (pointers only); all other items stay the same objects.
 */

/** Index of the item, or -1. */
function indexFrom<T, K extends keyof T>(list: readonly T[], field: K, value: T[K]): number {
  for (let i = list.length - 1; i >= 0; i--) {
    if (list[i]?.[field] === value) return i;
  }
  return -1;
}

/** With the item changed by `change`; the same list if there is none or `change` gives it back as it was. */
export function changed<T, K extends keyof T>(
  list: readonly T[],
  field: K,
  value: T[K],
  change: (item: T) => T,
): readonly T[] {
  const index = indexFrom(list, field, value);
  const item = list[index];
  if (item === undefined) return list;
  const next = change(item);
  return next === item ? list : list.with(index, next);
}

/** With the item in the place of the one that has its id, else at the end. */
export function placed<T, K extends keyof T>(list: readonly T[], field: K, item: T): readonly T[] {
  const index = indexFrom(list, field, item[field]);
  return index === -1 ? [...list, item] : list.with(index, item);
}

/**
 * With one member more, or changed. `__proto__` is left out: where names are the log's own, it is the one
 * that does not survive being copied.
 */
export function withMember<T>(
  record: Readonly<Record<string, T>>,
  name: string,
  value: T,
): Readonly<Record<string, T>> {
  return name === "__proto__" ? record : { ...record, [name]: value };
}

/** The member of that name, if the record itself has one. */
export function memberOf<T>(record: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

/**
 * Without the members that are undefined: JSON drops those, and a state must come back from a snapshot
 * exactly as it went in.
 */
export function compact<T extends object>(value: T): T {
  // Built up rather than deleted from: an object that lost members is slow to copy ever after.
  const names = Object.keys(value) as (keyof T)[];
  if (names.every((name) => value[name] !== undefined)) return value;
  const kept: Partial<T> = {};
  for (const name of names) {
    if (value[name] !== undefined) kept[name] = value[name];
  }
  return kept as T;
}
