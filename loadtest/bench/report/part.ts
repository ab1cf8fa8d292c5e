/** What a part hands to the report. */

export interface Table {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

export interface Aim {
  readonly what: string;
  /** As text, e.g. `at least 60 %`. */
  readonly aim: string;
  readonly measured: string;
  /** Undefined where nothing valid was measured. */
  readonly met: boolean | undefined;
}

export interface PartReport {
  readonly title: string;
  /** How it was measured, a sentence each. */
  readonly how: readonly string[];
  readonly table: Table;
  readonly aims: readonly Aim[];
  /** Further sections, e.g. where the time goes. */
  readonly notes: readonly string[];
  /** Every single measurement, for the JSON file. */
  readonly raw: unknown;
}

/** Tells whoever waits what is going on. */
export type Say = (what: string) => void;
