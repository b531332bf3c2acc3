/** The routes of schedules of snapshots, the same for containers and volumes. */
import { z } from "zod";
import { acknowledgement } from "../base/schema.ts";
import { byContainer } from "../containers/schema.ts";
import type { Containers } from "../containers/service.ts";
import { route } from "../http/route.ts";
import type { Volumes } from "../volumes/service.ts";
import { SAMPLES } from "./samples.ts";
import type { Schedules } from "./schedules.ts";
import { type PutSchedule, putSchedule, putVolumeSchedule, scheduleRecord } from "./schema.ts";

export interface ScheduleRoutesOptions {
  readonly schedules: Schedules;
  readonly containers: Containers;
  readonly volumes: Volumes;
}

/** Headers of every route of snapshots. */
export const READS = ["X-Tenant-Id"] as const;

const byVolume = z.object({ name: z.string().meta({ description: "Name of the volume.", examples: ["data"] }) });

export function scheduleRoutes({ schedules, containers, volumes }: ScheduleRoutesOptions) {
  return [
    ...routesOf({
      ...{
        kind: "container",
        of: "Container",
        prefix: "/api/containers/:container_id",
        params: byContainer,
        schedules,
      },
      wanted: putSchedule,
      example: { container_id: "{container_id}" },
      idOf: async (tenant_id, { container_id }) => (await containers.held(tenant_id, container_id)).id,
    }),
    ...routesOf({
      ...{ kind: "volume", of: "Volume", prefix: "/api/volumes/:name", params: byVolume, schedules },
      wanted: putVolumeSchedule,
      example: { name: "data" },
      idOf: async (tenant_id, { name }) => (await volumes.root(tenant_id, name)).row.id,
    }),
  ];
}

interface Of<Prefix extends string, Params extends z.ZodType, Of extends string, Wanted> {
  readonly wanted: Wanted;
  readonly kind: "container" | "volume";
  readonly of: Of;
  readonly prefix: Prefix;
  readonly params: Params;
  readonly schedules: Schedules;
  readonly example: Readonly<Record<string, string>>;
  /** Throws NOT_FOUND, WRONG_STATE. */
  readonly idOf: (tenant_id: string, params: z.output<Params>) => Promise<string>;
}

function routesOf<
  const Prefix extends string,
  Params extends z.ZodType,
  const Name extends string,
  Wanted extends typeof putSchedule | typeof putVolumeSchedule,
>({ wanted, kind, of, prefix, params, schedules, example, idOf }: Of<Prefix, Params, Name, Wanted>) {
  const path = `${prefix}/snapshot-schedule` as const;
  const response = kind === "container" ? SAMPLES.schedule : SAMPLES.volume_schedule;
  return [
    route({
      method: "PUT",
      path,
      auth: "tenant",
      scope: "write",
      operation: `put${of}Schedule`,
      summary: `Makes or replaces the schedule by which the daemon takes snapshots of a ${kind}.`,
      headers: READS,
      params,
      body: wanted,
      response: scheduleRecord,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: example, body: { every_seconds: 3_600, keep: 24 }, response },
      handler: async ({ caller, params, body }) => {
        const id = await idOf(caller.tenant_id, params as z.output<Params>);
        const how = { consistency_mode: "crash-consistent" as const, volume_mode: "exclude" as const };
        return schedules.put(caller.tenant_id, { kind, id }, { ...how, ...(body as PutSchedule) });
      },
    }),
    route({
      method: "GET",
      path,
      auth: "tenant",
      scope: "read",
      operation: `get${of}Schedule`,
      summary: `Returns the schedule of snapshots of a ${kind}.`,
      headers: READS,
      params,
      response: scheduleRecord,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: example, response },
      handler: async ({ caller, params }) => {
        const id = await idOf(caller.tenant_id, params as z.output<Params>);
        return schedules.get(caller.tenant_id, { kind, id });
      },
    }),
    route({
      method: "DELETE",
      path,
      auth: "tenant",
      scope: "write",
      operation: `delete${of}Schedule`,
      summary: `Deletes the schedule of snapshots of a ${kind}; its snapshots stay.`,
      headers: READS,
      params,
      response: acknowledgement,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: example, response: { success: true, message: "schedule deleted" } },
      handler: async ({ caller, params }) => {
        const id = await idOf(caller.tenant_id, params as z.output<Params>);
        await schedules.delete(caller.tenant_id, { kind, id });
        return { success: true as const, message: "schedule deleted" };
      },
    }),
  ];
}
