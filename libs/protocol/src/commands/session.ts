import { z } from "zod";
import { label, options, role, user } from "../fields.ts";
import { connectionCommand } from "./envelope.ts";

export const sessionCreate = connectionCommand(
  "session.create",
  "Makes a session. Its id is derived from the command's. `members`: user → role; the creator is the owner. `options`: defaults for its runs.",
  z
    .object({
      title: label.optional(),
      members: z.record(user, role).optional(),
      options: options.optional(),
    })
    .prefault({}),
);
