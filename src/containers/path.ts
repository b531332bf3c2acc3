/** The path parameter of every route of one container. */
import { z } from "zod";

export const byContainer = z.object({
  container_id: z.string().meta({ description: "Id or name of the container.", examples: ["ctr_c1v8hx2m9qk4te7b"] }),
});

export const ID_EXAMPLE = { container_id: "{container_id}" };
