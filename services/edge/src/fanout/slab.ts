/**
 * Memory for frames, cut from blocks. A block of one's own for each 300-byte frame costs 1.3 µs
 * more than the frame's copying; Node's shared pool would let one old frame hold 8 KiB that
 * belong to strangers. One slab serves one ring, which lets go in the order of cutting, so at
 * most two of its blocks are held in part.
 */
export class Slab {
  readonly #blockBytes: number;
  #block: Buffer | undefined;
  #used = 0;

  constructor(blockBytes: number) {
    this.#blockBytes = blockBytes;
  }

  /** Uninitialised memory of exactly `bytes`. */
  take(bytes: number): Buffer {
    if (bytes > this.#blockBytes / 2) return Buffer.allocUnsafeSlow(bytes);
    if (this.#block === undefined || this.#used + bytes > this.#blockBytes) {
      this.#block = Buffer.allocUnsafeSlow(this.#blockBytes);
      this.#used = 0;
    }
    const piece = this.#block.subarray(this.#used, this.#used + bytes);
    this.#used += bytes;
    return piece;
  }
}
