/** `hearth deploy`: a folder with hearth.toml, or a function that exists. */
import { existsSync } from "node:fs";
import { deployFunction } from "../functions/functions.ts";
import { visible } from "../output/text.ts";
import { profilesOf, withBuild } from "../profiles/first-use.ts";
import { usage } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { deployProject, invokeCommand, namesOf, plan, sentence } from "./deployment.ts";
import { scan } from "./files.ts";
import { isProject, type Project, readProject } from "./project.ts";
import { uploadCode } from "./upload.ts";

/** Flags that make no sense for a function that exists. */
const FOLDER_FLAGS = ["note", "build", "dryRun"] as const;

export async function deploy(session: Session, [target = "."]: Words, flags: Flags): Promise<void> {
  if (flags.fromContainer !== undefined) {
    const wrong = (["build", "dryRun"] as const).find((flag) => flags[flag] !== undefined);
    if (target === "." || wrong !== undefined) {
      const why = wrong === undefined ? "needs the name of a function" : "cannot be combined with --build or --dry-run";
      throw usage(`--from-container ${why}`, "for example: hearth deploy tool --from-container box --handler ./tool");
    }
    return (await import("./from-container.ts")).deployFromContainer(session, target, flags);
  }
  if (flags.handler !== undefined)
    throw usage("--handler needs --from-container", "write the handler into hearth.toml");
  if (isFolder(session, target)) return deployFolder(session, target, flags);
  const given = FOLDER_FLAGS.find((flag) => flags[flag] !== undefined);
  if (given !== undefined) {
    const flag = `--${given === "dryRun" ? "dry-run" : given}`;
    throw usage(
      `${flag} needs a folder with hearth.toml: '${target}' is a function`,
      "list the flags with: hearth deploy --help",
    );
  }
  if (existsSync(target)) session.advice = { NOT_FOUND: "a folder needs a hearth.toml: create one with 'hearth init'" };
  return deployFunction(session, target, flags.smoke as string | undefined);
}

/** A path, or the name of a folder with hearth.toml; any other word is a function. */
function isFolder(session: Session, target: string): boolean {
  if (session.isFunctionId(target)) return false;
  return /^\.|\//.test(target) || isProject(target);
}

async function deployFolder(session: Session, folder: string, flags: Flags): Promise<void> {
  const project = await readProject(folder);
  const smoke = flags.smoke as string | undefined;
  if (smoke !== undefined && project.functions.length > 1) {
    throw usage("--smoke needs a folder with one function", "write [functions.smoke] into hearth.toml");
  }
  const isDryRun = flags.dryRun === true;
  const codes =
    flags.build === true
      ? await (await import("./build.ts")).buildCodes(session, project)
      : await uploadCodes(session, project);
  const request = deployProject(session, project, { codes, note: flags.note as string | undefined, smoke, isDryRun });
  const doing = isDryRun ? "comparing" : "deploying";
  const profiles = isDryRun ? [] : profilesOf(project.functions.map(({ described }) => described));
  const answer = await withBuild(session, profiles, `${doing} ${namesOf(project)}`, request);
  session.show(answer, () => answer.functions.map((one) => (isDryRun ? plan : sentence)(session, one)).join(""));
  const [first] = project.functions;
  const isNew = answer.functions.some(({ action }) => action === "created");
  if (first === undefined || !isNew || isDryRun || session.flags.json === true) return;
  session.terminal.note(`to call it: ${visible(await invokeCommand(first))}`);
}

/** Uploads the code of each folder once. Resolves to the digest of each function's. */
export async function uploadCodes(session: Session, { functions }: Project): Promise<string[]> {
  const digests = new Map<string, string>();
  for (const { directory } of functions) {
    if (digests.has(directory)) continue;
    digests.set(directory, (await uploadCode(session, scan(directory))).code_sha256);
  }
  return functions.map(({ directory }) => digests.get(directory) ?? "");
}
