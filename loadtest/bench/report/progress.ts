/** One line that says what is being measured, with a clock: the bench takes minutes. */
import type { Say } from "./part.ts";

export interface Progress {
  readonly say: Say;
  /** Ends the line of the last `say`. */
  readonly done: Say;
}

export function progress(out: NodeJS.WriteStream): Progress {
  const live = out.isTTY;
  const began = performance.now();
  const clock = (): string => {
    const seconds = Math.round((performance.now() - began) / 1000);
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  };
  return {
    say: (what) => {
      out.write(live ? `\r\u001b[K${clock()}  ${what}` : `${clock()}  ${what}\n`);
    },
    done: (what) => {
      out.write(`${live ? "\r\u001b[K" : ""}${clock()}  ${what}\n`);
    },
  };
}
