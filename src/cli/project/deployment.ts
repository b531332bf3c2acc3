/** The deployment of a project: its code uploaded, all its functions in one request, and the answer in words. */
import { LIMITS } from "../../base/limits.ts";
import type { ResponseOf } from "../../client/client.ts";
import { fieldName, settingLine } from "../functions/changes.ts";
import type { Format } from "../output/terminal.ts";
import { shellWord, visible } from "../output/text.ts";
import { parseExactly } from "../session/exact-json.ts";
import { readInput } from "../session/input.ts";
import type { Session } from "../session/session.ts";
import { withRuleAgainst } from "./left-out.ts";
import type { Described, Project, ProjectFunction } from "./project.ts";

export type Deployed = ResponseOf<"POST /api/functions/deployments">;
export type DeployedFunction = Deployed["functions"][number];

export interface DeploymentOptions {
  /** Digest of the code of each function, in the order of the project. */
  readonly codes: readonly string[];
  readonly note?: string | undefined;
  /** Payload of the smoke call in place of the file's. */
  readonly smoke?: string | undefined;
  readonly isDryRun?: boolean;
}

/**
 * Requests the deployment. A refusal of a field becomes a failure that names its line, except for --json; one of a handler
 * also names the rule that left out its file.
 */
export async function deployProject(
  session: Session,
  project: Project,
  { codes, note, smoke, isDryRun = false }: DeploymentOptions,
): Promise<Deployed> {
  const functions = project.functions.map(
    ({ described }, i): Described => ({
      ...described,
      code_sha256: codes[i] ?? null,
      ...(note === undefined ? {} : { note }),
      ...(smoke === undefined ? {} : { smoke: { ...described.smoke, payload: smoke } }),
    }),
  );
  const client = session.client(LIMITS.cli_call_timeout_ms);
  try {
    return await client.request("POST /api/functions/deployments", { body: { functions, dry_run: isDryRun } });
  } catch (error) {
    throw session.flags.json === true ? error : withRuleAgainst(session, project, error);
  }
}

/** The names of all functions of a project, for messages. */
export const namesOf = ({ functions }: Project): string => functions.map(({ name }) => visible(name)).join(", ");

const ACTION_FORMATS: Readonly<Record<DeployedFunction["action"], Format>> = {
  created: "green",
  updated: "green",
  activated: "green",
  unchanged: "dim",
};

/** `hello is active, version 3 (updated: code)`. */
export function sentence({ terminal }: Session, { name, action, version, changes }: DeployedFunction): string {
  const format = ACTION_FORMATS[action];
  if (action === "unchanged") return `${visible(name)} is ${terminal.paint(format, action)}, version ${version}\n`;
  const fields = changes.map(({ field }) => fieldName(field)).join(", ");
  const what = fields === "" ? action : `${action}: ${fields}`;
  return `${visible(name)} is ${terminal.paint(format, "active")}, version ${version} (${what})\n`;
}

/** The line of a function in a dry run, and the values that would change. */
export function plan({ terminal }: Session, { name, action, changes }: DeployedFunction): string {
  if (action === "unchanged") return `${visible(name)}: ${terminal.paint("dim", "unchanged")}\n`;
  const verb = { created: "create", updated: "update", activated: "activate" }[action];
  return `${visible(name)}: ${terminal.paint("yellow", verb)}\n${changes.map(settingLine).join("")}`;
}

/** A payload that fits a line of a shell. */
const WORD_LENGTH_MAX = 60;

/** The payload for tests as text; empty if there is none. */
export async function testPayload({ payload_file }: ProjectFunction): Promise<string> {
  return payload_file === null ? "" : readInput(payload_file);
}

/** The command that calls a function with its test payload. */
export async function invokeCommand(one: ProjectFunction): Promise<string> {
  const command = `hearth invoke ${shellWord(one.name)}`;
  // The call reports a payload that cannot be read.
  const short = compact((await testPayload(one).catch(() => "")).trim());
  if (one.payload_file === null || short === "") return command;
  return short.length <= WORD_LENGTH_MAX && !short.startsWith("-")
    ? `${command} ${shellWord(short)}`
    : `${command} --file ${shellWord(one.payload_file)}`;
}

function compact(payload: string): string {
  try {
    return JSON.stringify(parseExactly(payload));
  } catch {
    return payload;
  }
}
