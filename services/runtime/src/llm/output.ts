/** What a command prints: shown as it comes, kept within bounds. */

/** Kept of each end, in characters. A model reads some ten thousand at most; the log keeps them for good. */
const MAX_END = 16_384;
/** Shown live in all: who watches a command that prints for an hour has seen enough. */
const MAX_SHOWN = 1024 * 1024;
/** One word on the ephemeral lane. */
const MAX_PIECE = 8_192;
/** A command that prints a line at a time would else be an event a line. */
const SHOW_EVERY_MS = 50;

export interface Output {
  add(bytes: Uint8Array, from: "stdout" | "stderr"): void;
  /** Shows the rest, and gives what was kept. */
  end(): { readonly text: string; readonly leftOut: number };
  /** Shows nothing more. */
  close(): void;
}

export function openOutput(show: (text: string) => void): Output {
  // Each stream cuts its characters where it likes.
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let head = "";
  let tail = "";
  let total = 0;
  let unshown = "";
  let shown = 0;
  let timer: NodeJS.Timeout | undefined;

  const flush = (): void => {
    clearTimeout(timer);
    timer = undefined;
    for (let at = 0; at < unshown.length; at += MAX_PIECE) show(unshown.slice(at, at + MAX_PIECE));
    unshown = "";
  };
  const keep = (text: string): void => {
    total += text.length;
    const room = MAX_END - head.length;
    head += text.slice(0, room);
    // Cut now and then and not at every piece: a copy of the tail per line would be quadratic.
    tail += text.slice(room > 0 ? room : 0);
    if (tail.length > 4 * MAX_END) tail = tail.slice(-MAX_END);
    const visible = text.slice(0, MAX_SHOWN - shown);
    shown += visible.length;
    unshown += visible;
    if (unshown !== "") timer ??= setTimeout(flush, SHOW_EVERY_MS);
  };

  return {
    add: (bytes, from) => keep(decoders[from].decode(bytes, { stream: true })),
    end() {
      keep(decoders.stdout.decode() + decoders.stderr.decode());
      flush();
      const kept = tail.slice(-MAX_END);
      const leftOut = total - head.length - kept.length;
      const gap = leftOut > 0 ? `\n[… ${leftOut} characters left out …]\n` : "";
      return { text: head + gap + kept, leftOut };
    },
    close() {
      clearTimeout(timer);
      timer = undefined;
      unshown = "";
    },
  };
}
