/** A fresh id for a command, `<prefix>_` and 24 characters: 144 bits, so no two ever meet. */
export function newId(prefix: string): string {
  // Not randomUUID: browsers have that only in secure contexts, and an edge on a LAN is none.
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  return `${prefix}_${Array.from(bytes, (byte) => ALPHABET[byte & 63]).join("")}`;
}

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
