/**
 * Keys of durable operations: `parent/name#n`, the operation's place in the agent. The same agent given
 * the same input calls its operations in the same order, so a later attempt finds by the key what an
 * earlier one has stored. Pure.
 */
import { createHash } from "node:crypto";

/** Kinds of operations that have no name of their own. `@` is escaped in names, so they cannot meet. */
export type Unnamed = "@message" | "@tool" | "@emit" | "@approval" | "@input" | "@inbox";

/** The envelope's `key` has room for this much: some ten levels of steps with usual names. */
const MAX_KEY = 512;

export interface Operation {
  readonly key: string;
  /** The key without its number: what operations are counted by. */
  readonly scope: string;
  /** 1 for the first of its scope. */
  readonly n: number;
}

/** A place where operations are counted: the run (key "") or a step (its key). */
export class Place {
  readonly key: string;
  readonly #counts: Map<string, number> = new Map();

  constructor(key = "") {
    this.key = key;
  }

  /** The next operation of that name. Throws RangeError when the steps are nested too deep for a key. */
  next(name: string): Operation {
    return this.#count(escapeName(name));
  }

  nextUnnamed(kind: Unnamed): Operation {
    return this.#count(kind);
  }

  #count(name: string): Operation {
    const n = (this.#counts.get(name) ?? 0) + 1;
    this.#counts.set(name, n);
    const scope = this.key === "" ? name : `${this.key}/${name}`;
    const key = `${scope}#${n}`;
    if (key.length > MAX_KEY) {
      throw new RangeError(
        `steps are nested too deep, or their names are too long: ${key.slice(0, 80)}…`,
      );
    }
    return { key, scope, n };
  }
}

function escapeName(name: string): string {
  return name.replace(/[%/#@]/g, (character) => encodeURIComponent(character));
}

/**
 * The id of an operation. With a try: a step that was cut short or has failed, and the messages in it, get
 * other ids when it is done again, since what the first one had shown is closed and stays closed. Without
 * one: a message of the run itself begins anew in its old place, and a request that was answered is found.
 */
export function operationId(
  kind: "stp" | "msg" | "tc" | "apr" | "inp" | "bat",
  key: string,
  tryOf = "",
): string {
  const digest = createHash("sha256").update(`${tryOf} ${key}`).digest("base64url");
  return `${kind}_${digest.slice(0, 22)}`;
}
