/** Refusal of devices: not enough are free, or the tenant may hold no more. */
import { AppError, type AppErrorOptions } from "./errors.ts";

export interface Lack {
  readonly code: "CAPACITY_FULL" | "QUOTA_EXCEEDED";
  /** Devices that would have to be given back, with QUOTA_EXCEEDED by the same tenant. Null: that would not help. */
  readonly missing_count: number | null;
}

export class LackingError extends AppError {
  readonly lack: Lack;

  constructor(lack: Lack, message: string, options: AppErrorOptions) {
    super(lack.code, message, { ...options, retryable: false });
    this.lack = lack;
  }
}
