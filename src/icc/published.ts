/** Errors and answer that all publishing routes share. */
import type { Accepted } from "./publishing.ts";

export const PUBLISH_ERRORS = [
  ...(["NOT_FOUND", "QUEUE_FULL", "QUOTA_EXCEEDED", "IDEMPOTENCY_CONFLICT", "SHUTTING_DOWN"] as const),
  ...(["SERVICE_UNAVAILABLE", "WRONG_STATE", "BODY_TOO_LARGE"] as const),
] as const;

/** The answer to a publish. */
export const publishedOf = ({ inbox, ...accepted }: Accepted) => ({ ...accepted, container_id: inbox });
