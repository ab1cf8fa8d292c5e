import { afterAll, beforeAll, test } from "vitest";
import type { Edge } from "../src/edge.ts";
import { comeWhileRunsGoOn } from "./session-game.ts";
import { Stage } from "./stage.ts";

let stage: Stage;
let nodes: Edge[];

beforeAll(async () => {
  stage = await Stage.openOnCluster();
  nodes = [await stage.edge(), await stage.edge(), await stage.edge()];
}, 90_000);
afterAll(() => stage.close());

test("[VIEW2] [VIEW6] [INV2] with replicas that lag, and edges on other servers than the streams' leaders", async () => {
  for (let session = 0; session < 4; session += 1) await comeWhileRunsGoOn(stage, nodes);
}, 120_000);
