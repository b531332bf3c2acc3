/** The system packages, from the machine's own apt sources. Found by their files: asking dpkg costs 30 ms. */
import { existsSync, mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { InstallationError } from "../installation/installation-error.js";
import { SYSTEM_PATH } from "./command.js";

const LOCK_WAIT_SECONDS = 300;
const LISTS_RETRY_MS = 2_000;
const MULTIARCH = process.arch === "arm64" ? "aarch64-linux-gnu" : "x86_64-linux-gnu";

/**
 * `command`: found anywhere on the system's path, so a locally built one counts; `file`: exactly there.
 *
 * @typedef {{ name: string, command?: string, file?: string }} SystemPackage
 */

/** @type {readonly SystemPackage[]} */
const FOR_START = [
  { name: "crun", command: "crun" },
  { name: "runc", command: "runc" },
  { name: "buildah", command: "buildah" },
  // It removes layers without an image, which buildah cannot name.
  { name: "containers-storage", command: "containers-storage" },
  // buildah refuses to start without a policy.
  { name: "golang-github-containers-common", file: "/etc/containers/policy.json" },
  { name: "mmdebstrap", command: "mmdebstrap" },
  { name: "mount", command: "mount" },
  // The files of containers and volumes lie on it.
  { name: "btrfs-progs", command: "mkfs.btrfs" },
  { name: "nftables", command: "nft" },
  { name: "iproute2", command: "ip" },
  { name: "gcc", command: "cc" },
  // The helper is linked statically.
  { name: "libc6-dev", file: `/usr/lib/${MULTIARCH}/libc.a` },
  { name: "ca-certificates", file: "/etc/ssl/certs/ca-certificates.crt" },
];

/** @type {readonly SystemPackage[]} */
const FOR_TEST = [
  // The rules of .gitignore are held against it.
  { name: "git", command: "git" },
  // The bundle that the bench compares with; the dynamic busybox would not run in it.
  { name: "busybox-static", file: "/var/lib/dpkg/info/busybox-static.list" },
  // The page is tested in it.
  { name: "chromium", command: "chromium" },
  // Tests start it on loopback.
  { name: "docker-registry", command: "docker-registry" },
  // Tests start it on loopback.
  { name: "nats-server", command: "nats-server" },
  // Programs of images without glibc.
  { name: "musl-tools", command: "musl-gcc" },
  // The program of the runtime python3 is tested with it, beside the one of the image.
  { name: "python3", file: "/usr/bin/python3" },
];

/** @type {readonly SystemPackage[]} */
const FOR_HEAVY = [
  // libFuzzer is part of it, in a package of its own. AFL++ needs it too, and GCC has no fuzzer.
  { name: "clang", command: "clang" },
  { name: "libclang-rt-dev", file: "/var/lib/dpkg/info/libclang-rt-dev.list" },
];

/**
 * @param {"start" | "test" | "heavy"} mode
 * @param {(path: string) => boolean} exists
 * @returns {string[]} names of packages
 */
export function missingPackages(mode, exists) {
  const directories = SYSTEM_PATH.split(":");
  return [...FOR_START, ...(mode === "start" ? [] : FOR_TEST), ...(mode === "heavy" ? FOR_HEAVY : [])]
    .filter(({ command, file }) => {
      if (file !== undefined) return !exists(file);
      return !directories.some((directory) => exists(join(directory, command ?? "")));
    })
    .map(({ name }) => name);
}

/** Services of packages whose programs alone are used. @type {Readonly<Record<string, string>>} */
const UNWANTED_SERVICES = {
  "docker-registry": "docker-registry.service",
  "nats-server": "nats-server.service",
};

/** Masks services that the packages would start, as `systemctl mask` does. @param {readonly string[]} names */
function maskServices(names) {
  if (!existsSync("/run/systemd/system")) return;
  const directory = "/etc/systemd/system";
  for (const name of names) {
    const service = UNWANTED_SERVICES[name];
    if (service === undefined || existsSync(join(directory, service))) continue;
    mkdirSync(directory, { recursive: true });
    symlinkSync("/dev/null", join(directory, service));
  }
}

/** `apt-get update` does not wait for the lock of the lists by itself. @param {import("./command.js").Commands} commands */
async function update(commands) {
  const deadline_ms = performance.now() + LOCK_WAIT_SECONDS * 1000;
  for (;;) {
    try {
      // Without the option, an unreachable mirror is a warning and the failure comes later, unexplained.
      await commands.run(["apt-get", "update", "-o", "APT::Update::Error-Mode=any"], {
        env: { DEBIAN_FRONTEND: "noninteractive" },
      });
      return;
    } catch (error) {
      const isLocked = error instanceof InstallationError && /Could not get lock/.test(error.tail);
      if (!isLocked || performance.now() > deadline_ms || commands.interrupted !== null) throw error;
      await new Promise((resolve) => setTimeout(resolve, LISTS_RETRY_MS));
    }
  }
}

/** An interrupted dpkg leaves its journal here, and apt then refuses to work. @returns {boolean} */
function isDpkgInterrupted() {
  const journal = "/var/lib/dpkg/updates";
  return existsSync(journal) && readdirSync(journal).length > 0;
}

/** @type {import("./command.js").Step} */
export const packagesStep = {
  name: "system packages",
  large: true,

  missing({ mode }) {
    const names = missingPackages(mode, existsSync);
    return names.length === 0 ? null : names.join(" ");
  },

  async install({ mode }, commands) {
    const names = missingPackages(mode, existsSync);
    if (!existsSync("/usr/bin/apt-get")) {
      throw new InstallationError(`apt-get not found: install these packages by hand: ${names.join(" ")}`);
    }
    const env = { DEBIAN_FRONTEND: "noninteractive", NEEDRESTART_SUSPEND: "1" };
    /** @type {InstallationError | null} */
    let updateError = null;
    try {
      await update(commands);
    } catch (error) {
      // One broken source must not hide packages that the others or the old lists have.
      if (!(error instanceof InstallationError) || commands.interrupted !== null) throw error;
      updateError = error;
    }
    if (isDpkgInterrupted()) await commands.run(["dpkg", "--configure", "-a"], { env });
    maskServices(names);
    const wait = `DPkg::Lock::Timeout=${LOCK_WAIT_SECONDS}`;
    try {
      await commands.run(["apt-get", "install", "--yes", "--no-install-recommends", "-o", wait, ...names], { env });
    } catch (error) {
      if (error instanceof InstallationError && updateError !== null) {
        throw new InstallationError(`${updateError.message}, then ${error.message}`, updateError.tail + error.tail);
      }
      throw error;
    }
  },
};
