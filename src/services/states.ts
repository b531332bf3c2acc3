/** The statuses of a published service. None is stored: each is computed for the response. */

export const SERVICE_STATUSES = ["pending", "ready", "unavailable", "expired", "error"] as const;
export type ServiceStatus = (typeof SERVICE_STATUSES)[number];

/** Inputs of the status. */
export interface ServiceFacts {
  readonly isExpired: boolean;
  /** True if the daemon cannot serve it: its address is taken, its token is lost. */
  readonly isFailed: boolean;
  /** True if its container runs. */
  readonly isLive: boolean;
  /** True if its port accepts connections. */
  readonly isListening: boolean;
}

export function statusOf({ isExpired, isFailed, isLive, isListening }: ServiceFacts): ServiceStatus {
  if (isExpired) return "expired";
  if (isFailed) return "error";
  if (!isLive) return "unavailable";
  return isListening ? "ready" : "pending";
}
