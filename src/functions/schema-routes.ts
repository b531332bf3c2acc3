/** The route of the schema of hearth.toml, which an editor reads without a key. */
import { z } from "zod";
import { route } from "../http/route.ts";
import { projectSchema } from "./project-schema.ts";

export function schemaRoutes() {
  const made: { schema: Record<string, unknown> | null } = { schema: null };
  return [
    route({
      method: "GET",
      path: "/api/schemas/hearth.toml.json",
      auth: "public",
      operation: "projectSchema",
      summary: "Returns the JSON Schema of hearth.toml, for editors.",
      response: z.record(z.string(), z.unknown()),
      errors: ["CAPACITY_FULL"],
      handler: () => {
        made.schema ??= projectSchema();
        return made.schema;
      },
    }),
  ];
}
