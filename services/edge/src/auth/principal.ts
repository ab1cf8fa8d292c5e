/** Who is at the other end of a connection or request. Made by `authenticate`, never from anything a client says elsewhere. */
export interface Principal {
  /** An id: it becomes a subject token. */
  readonly tenant: string;
  /** Opaque, any characters. */
  readonly user: string;
  /** ms since the epoch: from then on nothing is shown to them. Undefined: no such time. */
  readonly expiresAt?: number;
}
