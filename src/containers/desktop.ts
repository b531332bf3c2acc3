/** Containers with a desktop: those of the profile prod-gui. Their desktop itself is the concern `gui`. */
import { AppError } from "../base/errors.ts";

export const DESKTOP_PROFILE = "prod-gui";

/** The command of every container with a desktop (runtimes/profiles/prod-gui). */
export const DESKTOP_COMMAND = ["/opt/hearth/desktop"];

/** The user of a strict one, which cannot change from root to it. xterm ends as root without capabilities. */
export const DESKTOP_USER = "desktop";

/** A reference of a release of the profile in the image store. */
const DESKTOP_REFERENCE = new RegExp(`^localhost/hearth/${DESKTOP_PROFILE}[:@]`);

/** The checks of desktops, as containers need them. */
export interface DesktopChecks {
  /** True if the desktop of a container answers; the result is at most a second old. */
  isReachable(id: string): Promise<boolean>;
  /** The last result, without a check. */
  wasReachable(id: string): boolean;
  /** Resolves when the desktop answers, at the latest after `gui_ready_ms` or when the container ends. */
  untilReachable(id: string): Promise<void>;
}

/** True for a container of the profile. An image of a tenant is none, whatever its name. */
export const isDesktop = ({ image, release }: { readonly image: string; readonly release: string | null }): boolean =>
  release !== null && DESKTOP_REFERENCE.test(image);

/** The image of a container as its owner names it: a profile without its release, or the reference of an image. */
export const imageName = ({ image, release }: { readonly image: string; readonly release: string | null }): string =>
  (release === null ? null : /^localhost\/hearth\/([^:@/]+)[:@]/.exec(image)?.[1]) ?? image;

/** Throws INVALID_ARGUMENT if a request for a container with a desktop names a command. */
export function checkDesktopCommand({ image, entrypoint, command }: Wanted & { readonly image: string }): void {
  const field = commandField({ entrypoint, command });
  if (field === null) return;
  throw new AppError("INVALID_ARGUMENT", `${field}: not accepted for image '${image}', whose command is its desktop`, {
    details: { expected: ["null"], received: field },
    hint: `leave ${field} out, and run commands by exec`,
  });
}

/** The same for a selector of the profile, known before its image is: the request is refused before anything is made. */
export function complaintAboutDesktop({ image, oci, ...fields }: Wanted & { image: string; oci: boolean }) {
  const field = oci || !/^prod-gui(?:[:@]|$)/.test(image) ? null : commandField(fields);
  return field === null
    ? null
    : { field, message: `is not accepted for image ${DESKTOP_PROFILE}: its command is the desktop` };
}

interface Wanted {
  readonly entrypoint?: readonly string[] | null | undefined;
  readonly command?: readonly string[] | null | undefined;
}

const commandField = ({ entrypoint, command }: Wanted) =>
  (entrypoint ?? null) !== null ? "entrypoint" : (command ?? null) !== null ? "command" : null;
