/** The shapes that the page reads, from where the daemon writes them: a change there is a type error in the page. */
import type { z } from "zod";
import type { containerMetrics, logEntry, processList } from "../containers/exec/schema.ts";
import type { networkSetup } from "../containers/network/schema.ts";
import type { fileEntry } from "../files/schema.ts";
import type { functionPools } from "../functions/pool-schema.ts";
import type { versionDiff } from "../functions/versions/schema.ts";
import type { operationList } from "../operations/schema.ts";
import type { acceptedCopy } from "../snapshots/schema.ts";
import type { systemInfo } from "../system/schema.ts";
import type { volumeDetail } from "../volumes/schema.ts";

export type { GroupStatus } from "../../pool/index.ts";
export type { ExecResult } from "../containers/exec/schema.ts";
export type { ContainerNetwork, NetworkDiagnostics } from "../containers/network/schema.ts";
export type { ContainerRecord } from "../containers/schema.ts";
export type { FileList } from "../files/schema.ts";
export type { FunctionPoolStatus } from "../functions/groups.ts";
export type { FunctionRecord, InvocationRecord, InvocationTimings, VersionRecord } from "../functions/schema.ts";
export type { OperationRecord } from "../operations/schema.ts";
export type { SecretRecord } from "../secrets/schema.ts";
export type { ServiceRecord } from "../services/schema.ts";
export type { Changes as FileChanges, Lineage, SnapshotDetail, SnapshotRecord } from "../snapshots/schema.ts";
export type { SessionRecord } from "../terminal/schema.ts";
export type { VolumeRecord } from "../volumes/schema.ts";

export type FunctionPools = z.output<typeof functionPools>;
export type NetworkSetup = z.output<typeof networkSetup>;
export type ContainerMetrics = z.output<typeof containerMetrics>;
export type ContainerProcess = z.output<typeof processList>["processes"][number];
export type LogEntry = z.output<typeof logEntry>;
export type OperationSummary = z.output<typeof operationList>["operations"][number];
export type AcceptedCopy = z.output<typeof acceptedCopy>;
export type VersionDiff = z.output<typeof versionDiff>;
export type SystemInfo = z.output<typeof systemInfo>;
export type VolumeDetail = z.output<typeof volumeDetail>;
export type FileEntry = z.output<typeof fileEntry>;
