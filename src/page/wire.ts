/** The shapes that the page reads, from where the daemon writes them: a change there is a type error in the page. */
export type { GroupStatus, PoolTotals } from "../../pool/index.ts";
export type { FunctionPoolStatus } from "../functions/groups.ts";
export type { FunctionRecord, InvocationRecord, InvocationTimings, VersionRecord } from "../functions/schema.ts";
export type { SessionRecord } from "../terminal/schema.ts";
