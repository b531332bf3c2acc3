/** The body of a publish: an envelope in base64, or a message in plain JSON. */
import { AppError } from "../base/errors.ts";
import type { JsonMessage } from "./envelope/message-schema.ts";

type Body = Partial<JsonMessage> & { readonly envelope_b64?: string | undefined };

/**
 * Returns which of the two a body is. `validate` checks the fields of a message against `messageSchema`, and throws
 * UNPROCESSABLE_ENTITY. Throws INVALID_ARGUMENT for both at once.
 */
export function messageContent(
  { envelope_b64, ...fields }: Body,
  validate: (fields: unknown) => JsonMessage,
): JsonMessage | { readonly envelope_b64: string } {
  if (envelope_b64 === undefined) return validate(fields);
  const [other] = Object.entries(fields).find(([, value]) => value !== undefined) ?? [];
  if (other === undefined) return { envelope_b64 };
  throw new AppError("INVALID_ARGUMENT", `${other}: must not be set beside envelope_b64`);
}
