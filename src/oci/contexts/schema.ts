/** Shapes of build contexts as zod schemas. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { epochSeconds, nextCursor } from "../../base/schema.ts";

/** The form of clients that send JSON. */
export const createContext = z
  .object({
    content: z.string().describe("The archive (tar or tar.gz) in base64."),
  })
  .meta({ id: "CreateBuildContext" });

export const contextRecord = z
  .object({
    context_id: z.string().describe("Id of the build context."),
    size_bytes: z.int().describe("Size of the unpacked files."),
    created_at: epochSeconds,
    expires_at: epochSeconds.describe(
      `Time at which the daemon deletes the context, ${LIMITS.context_seconds / 60} minutes after its upload; seconds since the Unix epoch.`,
    ),
  })
  .meta({ id: "BuildContext" });
export type ContextRecord = Readonly<z.output<typeof contextRecord>>;

export const contextList = z
  .object({ build_contexts: z.array(contextRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "BuildContextList" });
