/** Shapes that several concerns answer with. */
import { z } from "zod";

/** Whole seconds since the Unix epoch. */
export const epochSeconds = z.int().describe("Seconds since the Unix epoch.");

/** What a verb answers that has no record to show. */
export const acknowledgement = z
  .object({
    success: z.literal(true).describe("Always true: what failed is answered with an error."),
    message: z.string().describe("What was done, for people."),
  })
  .meta({ id: "Acknowledgement" });

/** A number without a fraction in [min, max]; a fraction is a bad value (400), not a wrong type (422). */
export const whole = (min: number, max: number) =>
  z.number().refine(Number.isInteger, { error: "expected a whole number" }).min(min).max(max).meta({ type: "integer" });

/** Text that comes back as it was sent: half a surrogate pair has no UTF-8, and would be kept as another character. */
export const wellFormed = z
  .string()
  .refine((value) => value.isWellFormed(), { error: "must not hold half a surrogate pair" });
