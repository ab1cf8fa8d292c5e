import { describe, expect, it } from "vitest";
import { createLogger, type Logger, redactText } from "@throughline/service-kit";

function logger(): { log: Logger; lines: () => Record<string, unknown>[]; raw: () => string } {
  let raw = "";
  const destination = { write: (line: string) => void (raw += line) };
  const log = createLogger({ service: "edge", node: "n1", level: "debug", destination });
  return {
    log,
    raw: () => raw,
    lines: () =>
      raw
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)),
  };
}

describe("the logger", () => {
  it("[LOG1] writes one JSON object a line, with service, node, level by name and time", () => {
    const { log, lines } = logger();
    log.info({ run: "run_1" }, "started");
    log.trace("below the level");
    expect(lines()).toEqual([
      {
        level: "info",
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
        service: "edge",
        node: "n1",
        run: "run_1",
        msg: "started",
      },
    ]);
  });

  it.each([
    ["a field", { token: "s3cret" }],
    ["a header", { req: { headers: { authorization: "Bearer s3cret", cookie: "s3cret" } } }],
    ["a subprotocol", { headers: { "sec-websocket-protocol": "throughline.v1, bearer.s3cret" } }],
    ["a URL", { url: "/v1/connect?ticket=s3cret&run=run_1" }],
    ["a URL's later parameter", { url: "/v1/connect?run=run_1&token=s3cret" }],
    ["a server URL", { servers: ["nats://user:s3cret@host:4222"] }],
    ["an error", { err: new Error("401 for Authorization: Bearer s3cret") }],
    ["deep inside", { a: { b: { token: "s3cret" } } }],
  ])("[LOG2] keeps a credential out of the log: in %s", (_, fields) => {
    const { log, raw, lines } = logger();
    log.warn(fields, "seen with Bearer s3cret");
    expect(raw()).toContain("[redacted]");
    expect(raw()).not.toContain("s3cret");
    expect(lines()).toHaveLength(1);
  });

  it("[LOG2] leaves the rest of a text alone", () => {
    expect(redactText("/v1/connect?ticket=abc&run=run_1")).toBe(
      "/v1/connect?ticket=[redacted]&run=run_1",
    );
    expect(redactText("nats://u:p@host:4222/x")).toBe("nats://u:[redacted]@host:4222/x");
    expect(redactText("http://127.0.0.1:8080 token 5")).toBe("http://127.0.0.1:8080 token 5");
  });
});
