/** Failed builds in words: the cause, as the end of the log shows it, and the operator's remedy. */

export interface FailureCause {
  readonly error: string;
  /** Null: the log has to be read. */
  readonly hint: string | null;
}

/** Words of apt, dpkg, buildah, set-up and the kernel. The first that matches counts: a full disk makes downloads fail, too. */
const CAUSES: readonly (FailureCause & { readonly pattern: RegExp })[] = [
  {
    pattern: /no space left on device|not enough disk space|enough free space in|disk quota exceeded/i,
    error: "no space left on the disk of the image store or the data directory",
    hint: "free disk space, for example by POST /api/oci/images/prune, and build again",
  },
  {
    pattern: /read-only file system/i,
    error: "the image store or the data directory is read-only",
    hint: "look for disk errors with dmesg, mount the file system writable, and build again",
  },
  {
    pattern: /could ?n[o']t (?:resolve|connect)|temporary failure resolving|unable to connect|failed to fetch/i,
    error: "the machine's apt sources are not reachable",
    hint: "check the network, /etc/apt and the daemon's proxy settings with apt-get update, and build again",
  },
  {
    pattern: /unable to locate package|no installation candidate|unmet dependencies/i,
    error: "the machine's apt sources lack a package of the recipe",
    hint: "check /etc/apt with apt-get update, and build again",
  },
  {
    pattern: /(?:failed|ended) with (?:SIGKILL|exit code 137)/,
    error: "a process of the build was killed",
    hint: "check with dmesg whether the machine ran out of memory, and build again",
  },
];

/**
 * Returns the cause of a failed build.
 *
 * @param message set-up's last line, which names the command that failed
 * @param output end of the log
 */
export function causeOf(message: string, output: string): FailureCause {
  const found = CAUSES.find(({ pattern }) => pattern.test(`${output}\n${message}`));
  if (found !== undefined) return { error: found.error, hint: found.hint };
  // Set-up only knows that its child failed, whose last lines are the reason and the command inside that failed.
  const lines = /^setpriv /.test(message) ? [...output.matchAll(/^ {2}\| (.*)$/gm)].map(([, line = ""]) => line) : [];
  const reason = lines.findLast((line) => !/ failed with (?:exit code|SIG)/.test(line));
  return { error: reason ?? lines.at(-1) ?? message, hint: null };
}
