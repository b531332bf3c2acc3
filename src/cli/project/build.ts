/**
 * `hearth deploy --build`: installs dependencies in a container of the runtime's image, made for it and removed afterwards.
 * The files in its folder after the build are the code; the folder on this machine stays as it is.
 *
 * B1 The container ends with the command: removed when the build ends or on Ctrl-C, else by the daemon after
 *    `cli_build_seconds`.
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { UNTRUSTED_HINT, UntrustedWatch } from "../../base/certificate-failures.ts";
import { LIMITS } from "../../base/limits.ts";
import type { RequestOf } from "../../client/client.ts";
import { streamed } from "../containers/exec.ts";
import { done, succeeded } from "../daemon/operations.ts";
import { visible } from "../output/text.ts";
import { EXIT, Failure, usage } from "../session/failure.ts";
import { isRefusal, type Session } from "../session/session.ts";
import { containerTree } from "../volumes/copy.ts";
import { checkSize, scan } from "./files.ts";
import type { Project, ProjectFunction } from "./project.ts";
import { exampleOf } from "./runtime-examples.ts";
import { tarOf } from "./tar-writer.ts";
import { sendArchive, uploadCode } from "./upload.ts";

/** The folder of the code in the container, as in an instance: programs may note their own path. */
const FOLDER = "/function";

const ENVIRONMENT = {
  CI: "true",
  HOME: "/tmp",
  npm_config_audit: "false",
  npm_config_fund: "false",
  npm_config_update_notifier: "false",
  PIP_DISABLE_PIP_VERSION_CHECK: "1",
  PIP_NO_INPUT: "1",
  PIP_ROOT_USER_ACTION: "ignore",
  // Bytecode of Python then names a hash of its source instead of the source's time, which code does not keep: instances
  // would compile all modules anew.
  SOURCE_DATE_EPOCH: "315532800",
};

/** Takes the certificates and the proxy that the operator gives to builds, where there are any (src/base/trust.ts). */
const TRUSTING = "if [ -r /dev/hearth/environment ]; then . /dev/hearth/environment; fi\n";

/**
 * The command that installs what a folder names; null: it names nothing. A program of the runtimes custom and shell finds
 * packages of Python beside it: unlike python3, these runtimes have no folder for them. Without --upgrade, which would
 * remove a folder of the program's own with the name of one that a package brings.
 */
function installCommand(runtime: string, directory: string): string | null {
  const has = (file: string) => existsSync(join(directory, file));
  const node = has("package-lock.json") ? "npm ci" : has("package.json") ? "npm install" : null;
  const python = has("requirements.txt") ? "pip install -r requirements.txt -t" : null;
  if (runtime === "nodejs") return node;
  if (runtime === "python3") return python === null ? null : `${python} site-packages --upgrade`;
  const commands = [node, python === null ? null : `${python} .`].filter((command) => command !== null);
  return commands.length === 0 ? null : commands.join(" && ");
}

function commandOf({ build, described, directory }: ProjectFunction): string | null {
  const given = described.runtime ?? "shell";
  return build.command ?? installCommand(exampleOf(given)?.runtime ?? given, directory);
}

/** Builds each function's code, and uploads it. Resolves to the digest of each. */
export async function buildCodes(session: Session, { functions }: Project): Promise<string[]> {
  const commands = functions.map(commandOf);
  if (commands.every((command) => command === null)) {
    throw usage(
      "nothing to build: no package.json, requirements.txt or [build] command",
      "write [build] with a command into hearth.toml, or deploy without --build",
    );
  }
  const digests = new Map<string, string>();
  const all: string[] = [];
  for (const [i, one] of functions.entries()) {
    const command = commands[i] ?? null;
    const key = JSON.stringify([one.directory, command, one.build]);
    const digest = digests.get(key) ?? (await codeOf(session, one, command));
    digests.set(key, digest);
    all.push(digest);
  }
  return all;
}

async function codeOf(session: Session, one: ProjectFunction, command: string | null): Promise<string> {
  const code = scan(one.directory);
  if (command === null) return (await uploadCode(session, code)).code_sha256;
  checkSize(code);
  return inContainer(session, one, async (container_id) => {
    const tree = containerTree(session, container_id);
    const sent = tree.send(FOLDER, tarOf(code));
    const operation_id = await session.terminal.progress(`sending ${visible(one.name)} to the build`, sent);
    await succeeded(session, operation_id, "unpacking");
    session.terminal.note(`$ ${visible(command)}`);
    const client = session.client(LIMITS.cli_call_timeout_ms);
    const { pieces } = await client.open("POST /api/containers/:container_id/stream", {
      params: { container_id },
      body: {
        command: ["/bin/sh", "-c", `${TRUSTING}${command}`],
        working_directory: FOLDER,
        environment: ENVIRONMENT,
        timeout_ms: LIMITS.exec_timeout_ms_max,
      },
    });
    const watch = new UntrustedWatch();
    const exit_code = await streamed(session, pieces, "err", (bytes) => watch.see(bytes.toString("latin1")));
    if (exit_code !== 0) {
      const hint = watch.isFound ? UNTRUSTED_HINT : null;
      throw new Failure(EXIT.refused, `build of ${one.name} failed: exited with ${exit_code}`, hint);
    }
    const built = await tree.open(`${FOLDER}/.`);
    return (await sendArchive(session, built.pieces, null)).code_sha256;
  });
}

type Made = RequestOf<"POST /api/containers">["body"];

/** B1. */
async function inContainer<T>(
  session: Session,
  { name, build }: ProjectFunction,
  work: (container_id: string) => Promise<T>,
): Promise<T> {
  const client = session.client();
  const body: Made = {
    name: `build-${randomBytes(6).toString("hex")}`,
    image: "prod",
    labels: { "hearth.build": name },
    egress: build.egress as Made["egress"],
    memory_limit_mb: build.memory_limit_mb ?? LIMITS.cli_build_memory_mb,
    ttl_seconds: LIMITS.cli_build_seconds,
  };
  const made = client.request("POST /api/containers", { body }).then(done);
  const remove = async (): Promise<void> => {
    const { container_id } = await made;
    await client
      .request("DELETE /api/containers/:container_id", { params: { container_id } })
      .catch((error: unknown) => {
        if (!isRefusal(error, "NOT_FOUND")) session.terminal.note(`container ${body.name} was not removed: ${error}`);
      });
  };
  const stop: { removal: Promise<void> | null } = { removal: null };
  const onInterrupt = (): void => {
    if (stop.removal !== null) process.exit(EXIT.interrupted);
    stop.removal = remove().catch(() => {});
    void stop.removal.then(() => process.exit(EXIT.interrupted));
  };
  session.interrupt_exit_code = null;
  process.on("SIGINT", onInterrupt);
  try {
    return await work((await session.terminal.progress("starting a container for the build", made)).container_id);
  } finally {
    // After Ctrl-C the process ends here, also if the work failed.
    await (stop.removal ?? remove().catch(() => {}));
    process.off("SIGINT", onInterrupt);
    session.interrupt_exit_code = EXIT.interrupted;
  }
}
