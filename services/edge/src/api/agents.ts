import type { Principal } from "../auth/principal.ts";
import { json, type Reply } from "../transport/problem.ts";
import type { ApiServices } from "./services.ts";

/** GET /v1/agents: what workers offer now. A run of another agent waits for one to come, and fails if none does. */
export async function getAgents(services: ApiServices, _principal: Principal): Promise<Reply> {
  return json(200, { agents: await services.agents.list() });
}
