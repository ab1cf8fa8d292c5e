import { authorise } from "../auth/grants.ts";
import type { Principal } from "../auth/principal.ts";
import type { SessionRecords } from "../commands/sessions.ts";

/**
 * Which of these sessions the user may not read any more. A record that cannot be had now says
 * nothing: it is asked for again. Never rejects.
 */
export async function sessionsLost(
  records: SessionRecords,
  principal: Principal,
  sessions: Iterable<string>,
): Promise<ReadonlySet<string>> {
  const lost = new Set<string>();
  const { tenant } = principal;
  await Promise.allSettled(
    [...new Set(sessions)].map(async (session) => {
      const record = await records.get({ tenant, session });
      if (!authorise(principal, "read", record).ok) lost.add(session);
    }),
  );
  return lost;
}
