/** Shapes of health checks: as a container is created with one, as it keeps it, and as its record shows it. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { isoTime, whole } from "../../base/schema.ts";
import { argv } from "../command-fields.ts";

const HEALTH_STATUSES = ["starting", "healthy", "unhealthy"] as const;
export type HealthStatus = (typeof HEALTH_STATUSES)[number];

const ON_UNHEALTHY = ["none", "restart"] as const;

const HEALTH = {
  interval_seconds: "Seconds between two checks, and before the first one.",
  timeout_seconds: "Seconds after which a check is killed and has failed.",
  start_period_seconds: "Seconds after the start in which a failed check does not count, until the first one succeeds.",
  retries: "Number of failed checks in a row after which the container is unhealthy.",
  on_unhealthy:
    "restart: the daemon stops an unhealthy container, and the restart policy, on-failure or always, starts it again.",
} as const;

export const wantedHealth = z
  .object({
    command: argv.optional().describe("Command as argv; exit code 0 means healthy. Default: the image's."),
    interval_seconds: whole(1, LIMITS.health_interval_seconds_max).optional().describe(HEALTH.interval_seconds),
    timeout_seconds: whole(1, LIMITS.health_timeout_seconds_max).optional().describe(HEALTH.timeout_seconds),
    start_period_seconds: whole(0, LIMITS.health_start_period_seconds_max)
      .optional()
      .describe(HEALTH.start_period_seconds),
    retries: whole(1, LIMITS.health_retries_max).optional().describe(HEALTH.retries),
    on_unhealthy: z.enum(ON_UNHEALTHY).default("none").describe(HEALTH.on_unhealthy),
  })
  .meta({ id: "HealthCheck" });

/** A policy that starts nothing again would leave an unhealthy container stopped. */
export function complaintAboutHealth({
  health,
  restart,
}: {
  health?: z.output<typeof wantedHealth> | "none" | null | undefined;
  restart: string;
}) {
  if (typeof health !== "object" || health === null || health.on_unhealthy === "none" || restart !== "no") return null;
  return { field: "health.on_unhealthy", message: "restart requires restart on-failure or always" };
}

export const healthRecord = z
  .object({
    status: z
      .enum(HEALTH_STATUSES)
      .nullable()
      .describe("starting: no check has succeeded yet, or too few have failed. Null unless it runs."),
    failing_streak: z.int().describe("Number of failed checks in a row."),
    last_check: z
      .object({
        at: isoTime,
        exit_code: z
          .int()
          .nullable()
          .describe("Exit code of the command; null if the check timed out or could not run."),
        timed_out: z.boolean().describe("True if the check reached its timeout."),
        duration_ms: z.int().describe("Milliseconds that the check took."),
        output: z.string().describe(`First ${LIMITS.health_output_bytes} bytes of its output.`),
      })
      .nullable()
      .describe("Latest check of this run; null before the first one."),
    interval_seconds: z.int().describe(HEALTH.interval_seconds),
    timeout_seconds: z.int().describe(HEALTH.timeout_seconds),
    start_period_seconds: z.int().describe(HEALTH.start_period_seconds),
    retries: z.int().describe(HEALTH.retries),
    on_unhealthy: z.enum(ON_UNHEALTHY).describe(HEALTH.on_unhealthy),
  })
  .meta({ id: "ContainerHealth" });

export type HealthRecord = Readonly<z.output<typeof healthRecord>>;
/** A health check as a container keeps it. */
export type HealthCheck = Readonly<
  Pick<HealthRecord, "interval_seconds" | "timeout_seconds" | "start_period_seconds" | "retries" | "on_unhealthy">
> & { readonly command: readonly string[] };
