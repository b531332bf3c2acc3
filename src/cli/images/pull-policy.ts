/** Pulls the image of a command as --pull says. The API never pulls by itself. */

import { usage } from "../session/failure.ts";
import type { Flags, Session } from "../session/session.ts";
import { isRefusal } from "../session/session.ts";
import { pulledImage } from "./images.ts";

/** Images that nodes build for themselves, with a channel or version; a reference of one of these names needs --oci. */
const PROFILE = /^(?:prod|prod-gui|rlm|aegis|amp|cc|codex)(?:[:@].*)?$/;
/** An id, or the beginning of one: no registry knows it. */
const IMAGE_ID = /^(?:sha256:)?[0-9a-f]{12,64}$/;

/** True if `--image` is an OCI reference: by --oci, or by --pull with anything but a profile. Throws usage failures. */
export function isReference({ image, oci, pull }: Flags): boolean {
  if (oci === true || pull === undefined) return oci === true;
  if (image === undefined) throw usage("--pull needs an image", "give --image <reference>");
  if (!PROFILE.test(image as string)) return true;
  throw usage(`profiles are never pulled: ${image as string}`, "leave --pull out, or give --oci for an OCI reference");
}

/** Pulls the image that flags name, as they say; only if the tenant lacks it, unless --pull says otherwise. */
export async function pullAsked(session: Session, flags: Flags): Promise<void> {
  const reference = flags.image as string | undefined;
  if (reference === undefined || !isReference(flags) || flags.pull === "never") return;
  const isWanted = flags.pull === "always" || !(await isThere(session, reference));
  if (!isWanted || IMAGE_ID.test(reference)) return;
  await pulledImage(session, { reference });
}

async function isThere(session: Session, reference: string): Promise<boolean> {
  try {
    await session.client().request("GET /api/oci/images/inspect", { query: { reference } });
    return true;
  } catch (error) {
    if (isRefusal(error, "NOT_FOUND")) return false;
    throw error;
  }
}
