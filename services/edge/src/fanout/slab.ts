const FIRST_BLOCK_BYTES = 1_024;

/**
 * Memory for frames, cut from blocks. A block of one's own for each 300-byte frame costs 1.3 µs
 * more than the frame's copying; Node's shared pool would let one old frame hold 8 KiB that
 * belong to strangers. One slab serves one ring, which lets go in the order of cutting, so at
 * most two of its blocks are held in part.
 */
export class Slab {
  readonly #mostBytes: number;
  #blockBytes: number;
  #block: Buffer | undefined;
  #used = 0;

  /** Blocks double up to `mostBytes`: a hub with one event an hour should not hold as much as a busy one. */
  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
    this.#blockBytes = Math.min(FIRST_BLOCK_BYTES, mostBytes);
  }

  /** Uninitialised memory of exactly `bytes`. */
  take(bytes: number): Buffer {
    if (bytes > this.#mostBytes / 2) return Buffer.allocUnsafeSlow(bytes);
    if (this.#block === undefined || this.#used + bytes > this.#block.byteLength) {
      this.#block = Buffer.allocUnsafeSlow(Math.max(this.#blockBytes, bytes));
      this.#blockBytes = Math.min(2 * this.#blockBytes, this.#mostBytes);
      this.#used = 0;
    }
    const piece = this.#block.subarray(this.#used, this.#used + bytes);
    this.#used += bytes;
    return piece;
  }
}
