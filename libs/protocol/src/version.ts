/** Version of the wire. `welcome` carries it; a change that an old client cannot ignore raises it. */
export const PROTOCOL_VERSION = 1;

/** The WebSocket subprotocol that both sides must name. */
export const SUBPROTOCOL = "throughline.v1";
