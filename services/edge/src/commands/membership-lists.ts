import type { SessionIndex, SessionPage, SessionRecord } from "@throughline/broker";
import type { Memberships } from "./services.ts";

/** Each user's list of sessions. The records say who may do what; these say where to look. */
export class MembershipLists implements Memberships {
  readonly #index: Pick<SessionIndex, "add" | "remove" | "list">;

  constructor(index: Pick<SessionIndex, "add" | "remove" | "list">) {
    this.#index = index;
  }

  async add(record: SessionRecord, users: readonly string[]): Promise<void> {
    const { tenant, session, created_at, title } = record;
    const entry = { session, created_at, ...(title === undefined ? {} : { title }) };
    await Promise.all(users.map((user) => this.#index.add(tenant, user, entry)));
  }

  remove({ tenant, session, created_at }: SessionRecord, user: string): Promise<void> {
    return this.#index.remove(tenant, user, { session, created_at });
  }

  async list(
    tenant: string,
    user: string,
    options: { readonly limit: number; readonly before: string | undefined },
  ): Promise<SessionPage | "no position"> {
    try {
      return await this.#index.list(tenant, user, options);
    } catch (error) {
      if (error instanceof RangeError) return "no position";
      throw error;
    }
  }
}
