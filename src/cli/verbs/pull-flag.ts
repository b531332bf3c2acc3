/** The flag of commands that name an image. `src/cli/images/pull-policy.ts` reads it. */
import type { Flag } from "../session/verb.ts";

export const PULL: Flag = {
  flags: "--pull <when>",
  about: "pull the OCI image: missing (default), always or never",
  choices: ["missing", "always", "never"],
};
