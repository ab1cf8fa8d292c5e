import { describe, expect, it } from "vitest";
import {
  changedMessages,
  currentDocument,
  currentWire,
  readDocument,
  readWire,
} from "../scripts/derive.ts";
import { PROTOCOL_VERSION } from "../src/index.ts";

const REGENERATE = "npm run generate -w @throughline/protocol";

describe("files that come from the code", () => {
  it("[WIRE4] the wire is the one that was agreed upon", () => {
    const [agreed, now] = [readWire(), currentWire()];
    const changed = changedMessages(agreed, now);
    const advice = [
      `The wire has changed: ${changed.join(", ") || "the version"}.`,
      "Can clients of this version live with it (a new type, or a new optional field)? Then run",
      `  ${REGENERATE}`,
      "and add to test/golden.json. If they cannot, raise PROTOCOL_VERSION and SUBPROTOCOL in src/version.ts first.",
    ].join("\n");
    expect({ protocol: PROTOCOL_VERSION, hash: now.hash }, advice).toEqual({
      protocol: agreed.protocol,
      hash: agreed.hash,
    });
    expect(changed, advice).toEqual([]);
  });

  it("[WIRE4] names what has changed", () => {
    const now = currentWire();
    const { custom: _, ...events } = now.events;
    const before = { ...now, events, commands: { ...now.commands, heartbeat: {} } };
    expect(changedMessages(before, now)).toEqual(["events custom", "commands heartbeat"]);
    expect(changedMessages(now, now)).toEqual([]);
  });

  it("[TAB5] PROTOCOL.md says what the code says", () => {
    expect(readDocument(), `PROTOCOL.md is behind the code: run ${REGENERATE}`).toBe(
      currentDocument(),
    );
  });
});
