/**
 * Ownership of a directory. Node runs compiled code from its cache unchecked: anyone who can write to the directory, or
 * replace it, runs code as the user of the command.
 */
import { lstatSync } from "node:fs";
import { dirname } from "node:path";

const WRITABLE_BY_OTHERS = 0o022;
/** As /tmp has it: only the owner of an entry removes or renames it. */
const STICKY = 0o1000;

/**
 * Returns true if a directory, present or yet to be made, and all above it belong to the user or root, and no other user
 * can change the path to it. Links are not followed: a link may lead elsewhere a moment later.
 *
 * @param {string} directory absolute
 * @param {number} [uid]
 * @returns {boolean}
 */
export function isOwnDirectory(directory, uid = process.getuid?.()) {
  let isThere = false;
  for (let at = directory; ; at = dirname(at)) {
    const found = lstatSync(at, { throwIfNoEntry: false });
    if (found !== undefined) {
      if (!found.isDirectory() || (found.uid !== uid && found.uid !== 0)) return false;
      const isGuarded = isThere && (found.mode & STICKY) !== 0;
      if ((found.mode & WRITABLE_BY_OTHERS) !== 0 && !isGuarded) return false;
      isThere = true;
    }
    if (at === dirname(at)) return true;
  }
}
