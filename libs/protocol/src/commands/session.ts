import { z } from "zod";
import { label, options, role, user } from "../fields.ts";
import { connectionCommand } from "./envelope.ts";

/** The session's id is derived from the command's. */
export const sessionCreate = connectionCommand(
  "session.create",
  z
    .object({
      title: label.optional(),
      /** User → role. The creator is the owner. */
      members: z.record(user, role).optional(),
      /** Defaults for the runs of the session. */
      options: options.optional(),
    })
    .prefault({}),
);
