import type { Principal } from "../auth/principal.ts";
import type { Authenticated } from "../auth/token.ts";
import type { CommandServices } from "../commands/execute.ts";
import type { EventSource } from "../fanout/log.ts";
import type { SnapshotSource } from "../fanout/start.ts";
import type { HttpRequest } from "../transport/http.ts";
import type { Reply } from "../transport/problem.ts";
import type { RequestHead } from "../transport/request.ts";

export interface ApiServices {
  readonly commands: CommandServices;
  readonly log: EventSource;
  readonly snapshots: SnapshotSource;
  authenticate(
    token: string | undefined,
    head: RequestHead,
  ): Promise<Authenticated> | Authenticated;
}

/** A request of a known user. Handlers may reject as the broker does. */
export type Handler = (
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
) => Promise<Reply>;
