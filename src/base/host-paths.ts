/**
 * Texts for tenants name no path of this machine: neither the directories of the daemon nor those of the kernel for a process
 * outside. Programs of the machine put such paths into their complaints, which tenants are told as the reason of a failure.
 */

/** What stands in the place of such a path. */
export const HOST_PATH = "<path of the node>";
/** The rest of a path, up to what ends one in a sentence. */
const REST = "(?:/[^\\s'\"`:;,()<>\\]]*)?";
/** Ways to the files of another process, and control groups and namespaces of this machine. */
const KERNEL = ["/proc/\\d{2,}/(?:root|ns|fd|cwd|exe|map_files)", "/sys/fs/cgroup", "/(?:var/)?run/netns"];

const state = { pattern: patternOf([]) };

function patternOf(directories: readonly string[]): RegExp {
  // The longest first: a directory may lie in another one.
  const own = directories.toSorted((a, b) => b.length - a.length).map((one) => RegExp.escape(one));
  return new RegExp(`(?<![\\w.-])(?:${[...own, ...KERNEL].join("|")})(?![\\w-])${REST}`, "g");
}

/** Names the directories of this process's daemon, once before it serves: absolute paths. */
export function hideDirectories(directories: readonly string[]): void {
  state.pattern = patternOf(directories.filter((one) => /^\/[^/]/.test(one)).map((one) => one.replace(/\/+$/, "")));
}

/** Returns the text without paths of this machine. */
export function withoutHostPaths(text: string): string {
  return text.replace(state.pattern, HOST_PATH);
}
