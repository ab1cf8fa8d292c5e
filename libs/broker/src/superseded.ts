import { isId } from "@throughline/protocol";

/** An object that a snapshot named until a later one replaced it. */
export interface Superseded {
  readonly id: string;
  /** ms since the epoch: when it was replaced. */
  readonly at: number;
}

/** Whoever was told of a state may fetch it for so long, if there are not too many newer ones. */
const GRACE_MS = 60_000;
/** A run that ends leaves at most so many replaced states, until they expire. */
const MOST = 8;

/** Pure: `held` and the state `current` that is now replaced by `next`, as what may go and what waits. */
export function superseding(
  held: readonly Superseded[],
  current: string | undefined,
  next: string | undefined,
  now: number,
): { readonly due: readonly Superseded[]; readonly left: readonly Superseded[] } {
  const all = [...held, ...(current === undefined ? [] : [{ id: current, at: now }])];
  const replaced = all.filter((old) => old.id !== next);
  const isDue = (old: Superseded, place: number): boolean =>
    now - old.at >= GRACE_MS || place < replaced.length - MOST;
  return {
    due: replaced.filter(isDue),
    left: replaced.filter((old, place) => !isDue(old, place)),
  };
}

/** As it stands in a header; undefined: nothing to say. */
export function supersededText(list: readonly Superseded[]): string | undefined {
  return list.length === 0 ? undefined : list.map(({ id, at }) => `${id}:${at}`).join(",");
}

/** Passes over what it cannot read: an object more is kept until it expires. */
export function parseSuperseded(text: string): Superseded[] {
  return text.split(",").flatMap((part) => {
    const [id, at] = part.split(":");
    return isId(id) && Number.isSafeInteger(Number(at)) ? [{ id, at: Number(at) }] : [];
  });
}
