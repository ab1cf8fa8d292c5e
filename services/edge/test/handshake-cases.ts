import { type HandshakeSpec, handshakeHead } from "./raw-socket.ts";
import type { UwsBuild } from "./uws-builds.ts";

/**
 * What the head of a request comes to, as data.
 *
 * `outcome`: `101 <subprotocol>`; `101` and a close code; `<status> <error code>`; a status alone where
 * uWebSockets answers by itself; `cut` where it closes, and `mute` where it waits for more until its time is
 * up, without an answer. Where the two builds differ, one for each.
 */
export interface HandshakeCase {
  readonly name: string;
  /** Written one after the other. */
  readonly writes: readonly string[];
  readonly outcome: string | Readonly<Record<UwsBuild["name"], string>>;
}

type Headers = NonNullable<HandshakeSpec["headers"]>;

const row = (
  name: string,
  outcome: HandshakeCase["outcome"],
  headers: Headers = {},
  spec: Omit<HandshakeSpec, "headers"> = {},
): HandshakeCase => ({ name, writes: [handshakeHead({ headers, ...spec })], outcome });

const OURS = "101 throughline.v1";
const BEARER = "bearer.dev.acme.ann";

/** RFC 6455, 4.2.1. */
const OPENING: readonly HandshakeCase[] = [
  row("a good one", OURS),
  row("header names and tokens in another case", OURS, {
    Upgrade: "WebSocket",
    Connection: "keep-alive, UPGRADE",
  }),
  row("no Upgrade", "426 upgrade_required", { Upgrade: undefined }),
  row("an upgrade to something else", "426 upgrade_required", { Upgrade: "h2c" }),
  row("no Connection", "400 malformed", { Connection: undefined }),
  row("Connection: close", "400 malformed", { Connection: "close" }),
  row("an old version", "426 upgrade_required", { "Sec-WebSocket-Version": "8" }),
  row("no version", "426 upgrade_required", { "Sec-WebSocket-Version": undefined }),
  row("two versions", "426 upgrade_required", {}, { moreLines: ["Sec-WebSocket-Version: 8"] }),
  row("no key", "400 malformed", { "Sec-WebSocket-Key": undefined }),
  row("a short key", "400 malformed", { "Sec-WebSocket-Key": "abc" }),
  row("a key that is no base64", "400 malformed", { "Sec-WebSocket-Key": "!".repeat(24) }),
  row("a key of 18 bytes", "400 malformed", { "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQAA" }),
  row(
    "two keys",
    "400 malformed",
    {},
    {
      moreLines: ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="],
    },
  ),
  row("a body", "400 malformed", { "Content-Length": "5" }),
  row("a body in chunks", "400 malformed", { "Transfer-Encoding": "chunked" }),
  row("POST", "405 method_not_allowed", {}, { requestLine: "POST /v1/connect HTTP/1.1" }),
  row("another path", "404 not_found", {}, { path: "/v1/connect/" }),
  row("an escaped path", "404 not_found", {}, { path: "/v1/%63onnect" }),
];

const SUBPROTOCOLS: readonly HandshakeCase[] = [
  row("none", "101", { "Sec-WebSocket-Protocol": undefined }),
  row("another one only", "400 malformed", { "Sec-WebSocket-Protocol": "graphql-ws" }),
  row("a token only", "400 malformed", { "Sec-WebSocket-Protocol": BEARER }),
  row("another version of ours", "400 malformed", { "Sec-WebSocket-Protocol": "throughline.v2" }),
  row("ours in another case", "400 malformed", { "Sec-WebSocket-Protocol": "Throughline.V1" }),
  row("ours among others", OURS, { "Sec-WebSocket-Protocol": "graphql-ws,throughline.v1 , x" }),
  row(
    "ours in a second header",
    OURS,
    { "Sec-WebSocket-Protocol": "graphql-ws" },
    {
      moreLines: ["Sec-WebSocket-Protocol: throughline.v1"],
    },
  ),
];

/** With our subprotocol a refusal is a close code, which a browser shows; without, a status. */
const CREDENTIALS: readonly HandshakeCase[] = [
  row("in the header", OURS),
  row("as a subprotocol", OURS, {
    Authorization: undefined,
    "Sec-WebSocket-Protocol": `throughline.v1, ${BEARER}`,
  }),
  row("as a subprotocol before ours", OURS, {
    Authorization: undefined,
    "Sec-WebSocket-Protocol": `${BEARER}, throughline.v1`,
  }),
  row("the header counts, a bad subprotocol does not", OURS, {
    "Sec-WebSocket-Protocol": "throughline.v1, bearer.nonsense",
  }),
  row("the header counts, a good subprotocol does not", "101 4401", {
    Authorization: "Bearer nonsense",
    "Sec-WebSocket-Protocol": `throughline.v1, ${BEARER}`,
  }),
  row("of two subprotocols the first counts", "101 4401", {
    Authorization: undefined,
    "Sec-WebSocket-Protocol": `throughline.v1, bearer.nonsense, ${BEARER}`,
  }),
  row("none", "101 4401", { Authorization: undefined }),
  row("an empty one", "101 4401", { Authorization: "Bearer " }),
  row("a bad one", "101 4401", { Authorization: "Bearer a.b.c" }),
  row("two headers", "101 4401", {}, { moreLines: ["Authorization: Bearer dev.acme.bob"] }),
  row(
    "in the query",
    "101 4401",
    { Authorization: undefined },
    {
      path: "/v1/connect?token=dev.acme.ann",
    },
  ),
  row("none, and no subprotocol", "401 unauthenticated", {
    Authorization: undefined,
    "Sec-WebSocket-Protocol": undefined,
  }),
];

/** A dev token is taken from local pages and programs alone. */
const ORIGINS: readonly HandshakeCase[] = [
  row("a local page", OURS, { Origin: "http://localhost:3000" }),
  row("a page of elsewhere", "101 4403", { Origin: "https://evil.example" }),
  row("a sandboxed page", "101 4403", { Origin: "null" }),
  row("a name that begins like a local one", "101 4403", {
    Origin: "http://localhost.evil.example",
  }),
  row(
    "two origins",
    "101 4403",
    { Origin: "http://localhost" },
    {
      moreLines: ["Origin: https://evil.example"],
    },
  ),
  row("a page of elsewhere, no subprotocol", "403 forbidden", {
    Origin: "https://evil.example",
    "Sec-WebSocket-Protocol": undefined,
  }),
  row("a Host of elsewhere", "101 4403", { Host: "evil.example" }),
  row(
    "two Hosts",
    { older: "101 4403", current: "400" },
    {},
    { moreLines: ["Host: evil.example"] },
  ),
  row("a proxy's header whose name is long", "101 4403", {
    [`X-Forwarded-${"a".repeat(200)}`]: "1",
  }),
];

const headers = (count: number): string[] =>
  Array.from({ length: count }, (_, i) => `X-Header-${i}: x`);
/** Beside the seven of a good handshake. */
const OWN_HEADERS = 7;
const cutInTwo = (head: string): string[] => [head.slice(0, 2_000), head.slice(2_000)];
const sized = (bytes: number): string =>
  handshakeHead({ headers: { "X-Padding": "x".repeat(bytes) } });

const SIZES: readonly HandshakeCase[] = [
  row("48 headers", OURS, {}, { moreLines: headers(48 - OWN_HEADERS) }),
  row("49 headers", { older: "mute", current: OURS }, {}, { moreLines: headers(49 - OWN_HEADERS) }),
  row(
    "150 headers",
    { older: "mute", current: "431" },
    {},
    { moreLines: headers(150 - OWN_HEADERS) },
  ),
  { name: "3,500 bytes in two packets", writes: cutInTwo(sized(3_200)), outcome: OURS },
  // The older build parses what one read brings, whatever its size, and keeps 4,096 bytes of what is not whole.
  {
    name: "4,500 bytes, not whole yet",
    writes: [sized(5_000).slice(0, 4_500)],
    outcome: { older: "cut", current: "431" },
  },
  {
    name: "90,000 bytes, not whole yet",
    writes: [sized(100_000).slice(0, 90_000)],
    outcome: { older: "cut", current: "431" },
  },
];

const unparsable = (outcome: string): HandshakeCase["outcome"] => ({
  older: "mute",
  current: outcome,
});

/** RFC 9112. The older build waits for the rest of what it cannot read. */
const HEADS: readonly HandshakeCase[] = [
  row("HTTP/1.0", unparsable("505"), {}, { requestLine: "GET /v1/connect HTTP/1.0" }),
  row(
    "HTTP/2.0 in the text of 1",
    unparsable("505"),
    {},
    { requestLine: "GET /v1/connect HTTP/2.0" },
  ),
  row(
    "a whole URL as target",
    unparsable("505"),
    {},
    {
      requestLine: "GET http://localhost/v1/connect HTTP/1.1",
    },
  ),
  row("a space in the path", unparsable("505"), {}, { path: "/v1/con nect" }),
  row("a NUL in the path", unparsable("505"), {}, { path: "/v1/conn\0ect" }),
  row("a NUL in a header", unparsable("400"), { "X-A": "a\0b" }),
  row("a folded header", unparsable("400"), {}, { moreLines: ["X-A: a", " b"] }),
  row("a space before the colon", unparsable("400"), {}, { moreLines: ["X-A : a"] }),
  row("a header without a colon", unparsable("400"), {}, { moreLines: ["XA"] }),
  row("no Host", { older: "cut", current: "400" }, { Host: undefined }),
  {
    name: "bare line feeds",
    writes: [handshakeHead().replaceAll("\r\n", "\n")],
    outcome: unparsable("505"),
  },
  {
    name: "TLS",
    writes: ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
    outcome: unparsable("505"),
  },
];

const post = (
  name: string,
  outcome: HandshakeCase["outcome"],
  lines: string[],
  body: string,
): HandshakeCase => ({
  name,
  outcome,
  writes: [
    [
      "POST /v1/sessions HTTP/1.1",
      "Host: localhost",
      "Authorization: Bearer dev.acme.ann",
      ...lines,
      "",
      body,
    ].join("\r\n"),
  ],
});
const CHUNKED = "Transfer-Encoding: chunked";
const unread = { older: "cut", current: "400" };

/** RFC 9112, 6: where a request ends. A second reading of it is how requests are smuggled past a proxy. */
const ENDS: readonly HandshakeCase[] = [
  post("one length", "201", ["Content-Length: 2"], "{}"),
  post("chunks", "201", [CHUNKED], "2\r\n{}\r\n0\r\n\r\n"),
  post("no body at all", "201", [], ""),
  post("two lengths", "400 malformed", ["Content-Length: 2", "Content-Length: 3"], "{}"),
  post("one length twice", "400 malformed", ["Content-Length: 2", "Content-Length: 2"], "{}"),
  post(
    "chunks of another coding",
    "400 malformed",
    ["Transfer-Encoding: gzip, chunked"],
    "2\r\n{}\r\n0\r\n\r\n",
  ),
  post("chunked twice", "400 malformed", [CHUNKED, CHUNKED], "2\r\n{}\r\n0\r\n\r\n"),
  post("a length and chunks", unread, ["Content-Length: 2", CHUNKED], "2\r\n{}\r\n0\r\n\r\n"),
  post("a length that is none", unread, ["Content-Length: abc"], "{}"),
  post("a length below nothing", unread, ["Content-Length: -1"], "{}"),
  post("a length in hexadecimal", unread, ["Content-Length: 0x2"], "{}"),
  post("a length of 24 digits", unread, [`Content-Length: ${"9".repeat(24)}`], "{}"),
  post("a chunk whose size is none", unread, [CHUNKED], "zz\r\n{}\r\n0\r\n\r\n"),
];

export const HANDSHAKE_CASES: Readonly<Record<string, readonly HandshakeCase[]>> = {
  opening: OPENING,
  subprotocols: SUBPROTOCOLS,
  credentials: CREDENTIALS,
  origins: ORIGINS,
  sizes: SIZES,
  heads: HEADS,
  ends: ENDS,
};
