import type {
  AgentDirectory,
  ObjectStore,
  RunIndex,
  SessionPage,
  SessionStore,
} from "@throughline/broker";
import type { Principal } from "../auth/principal.ts";
import type { Origins } from "../auth/origins.ts";
import type { StreamTickets } from "../auth/stream-tickets.ts";
import type { Authenticated } from "../auth/token.ts";
import type { CommandServices } from "../commands/services.ts";
import type { EventSource } from "../fanout/log.ts";
import type { StateSources } from "../fanout/start.ts";
import type { Slots } from "../lifecycle/admission.ts";
import type { Streamed } from "../transport/exchange.ts";
import type { HttpRequest } from "../transport/http.ts";
import type { Reply } from "../transport/problem.ts";
import type { RequestHead } from "../transport/request.ts";
import type { LongPolls } from "./long-polls.ts";
import type { Streams } from "./stream.ts";

export interface ApiServices extends StateSources {
  readonly commands: CommandServices;
  readonly log: EventSource;
  readonly records: Pick<SessionStore, "update">;
  readonly sessionLists: SessionLists;
  readonly runs: Pick<RunIndex, "list">;
  readonly objects: Pick<ObjectStore, "get" | "stat">;
  readonly agents: Pick<AgentDirectory, "list">;
  readonly streams: Streams;
  readonly tickets: StreamTickets;
  readonly origins: Origins;
  readonly polls: Pick<LongPolls, "wait">;
  /** Objects on their way out, node-wide. */
  readonly downloads: Slots;
  authenticate(
    token: string | undefined,
    head: RequestHead,
  ): Promise<Authenticated> | Authenticated;
}

/** The sessions that a user has a part in, newest first. `before` is a page's `next`. */
export interface SessionLists {
  list(
    tenant: string,
    user: string,
    options: { readonly limit: number; readonly before: string | undefined },
  ): Promise<SessionPage | "no position">;
}

/** A request of a known user. Handlers may reject as the broker does. */
export type Handler = (
  services: ApiServices,
  principal: Principal,
  request: HttpRequest,
) => Promise<Reply | Streamed>;
