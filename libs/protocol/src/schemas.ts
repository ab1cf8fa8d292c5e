/* The wire as zod schemas, for those who decode what they cannot trust: edge and worker. */
export { commandSchema } from "./commands/catalogue.ts";
export {
  decodeCommand,
  parseCommand,
  type CommandError,
  type ParsedCommand,
} from "./commands/decode.ts";
export { controlFrameSchema } from "./control/catalogue.ts";
export { durableEventSchema, ephemeralEventSchema, eventSchema } from "./events/catalogue.ts";
export { runStateSchema } from "./state/schema.ts";
