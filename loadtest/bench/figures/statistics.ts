/** Figures made from samples. All pure. */

/** The smallest sample that at least `share` (0…1) of all samples do not exceed (nearest rank). NaN without samples. */
export function percentile(samples: readonly number[], share: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  const rank = Math.ceil(share * sorted.length);
  return sorted[Math.max(0, rank - 1)] ?? Number.NaN;
}

/** The middle sample, or the mean of the two middle ones. NaN without samples. */
export function median(samples: readonly number[]): number {
  const sorted = [...samples].sort((a, b) => a - b);
  const upper = sorted[Math.floor(sorted.length / 2)];
  const lower = sorted[Math.ceil(sorted.length / 2) - 1];
  return upper === undefined || lower === undefined ? Number.NaN : (upper + lower) / 2;
}

/**
 * Of two things measured in turns (A B A B), how the first stands to the second. Medians, not
 * means: one round that another process disturbed must not decide.
 */
export function ratioOfMedians(ours: readonly number[], theirs: readonly number[]): number {
  return median(ours) / median(theirs);
}
