/**
 * The parts of RFB (RFC 6143) that the daemon speaks itself: version and security of both ends, and the bounds of what a
 * server says of its screen. Everything after these passes unread.
 */
import { LIMITS } from "../base/limits.ts";

/** Version 3.8, the only one that is spoken: as the server's greeting and as a client's answer (§7.1.1). */
export const RFB_VERSION = Buffer.from("RFB 003.008\n", "latin1");

/** Security type without authentication (§7.2.1). */
const SECURITY_NONE = 1;
/** One type, which is that one. */
const SECURITY_TYPES = Buffer.from([1, SECURITY_NONE]);
const SECURITY_CHOICE = Buffer.from([SECURITY_NONE]);
/** SecurityResult: OK (§7.1.3). */
const SECURITY_OK = Buffer.alloc(4);

/** Bytes of ServerInit before the name (§7.3.2). */
export const SERVER_INIT_BYTES = 24;

/** A step of a handshake: bytes to send, or the end, or a need for more bytes. */
export type Step = { readonly send: Buffer; readonly isDone: boolean; readonly used: number } | "more" | "refused";

/** The handshake with a server, up to its SecurityResult. */
export class ServerHandshake {
  #stage: "version" | "types" | "result" = "version";

  next(bytes: Buffer): Step {
    if (this.#stage === "version") {
      if (bytes.length < RFB_VERSION.length) return "more";
      if (!bytes.subarray(0, RFB_VERSION.length).equals(RFB_VERSION)) return "refused";
      this.#stage = "types";
      return { send: RFB_VERSION, isDone: false, used: RFB_VERSION.length };
    }
    if (this.#stage === "types") {
      const count = bytes[0];
      if (count === undefined || bytes.length < 1 + count) return "more";
      if (!bytes.subarray(1, 1 + count).includes(SECURITY_NONE)) return "refused";
      this.#stage = "result";
      return { send: SECURITY_CHOICE, isDone: false, used: 1 + count };
    }
    if (bytes.length < SECURITY_OK.length) return "more";
    if (bytes.readUInt32BE(0) !== 0) return "refused";
    return { send: Buffer.alloc(0), isDone: true, used: SECURITY_OK.length };
  }
}

/** The handshake with a client, after the daemon has sent its version. */
export class ClientHandshake {
  #stage: "version" | "choice" = "version";

  next(bytes: Buffer): Step {
    if (this.#stage === "version") {
      if (bytes.length < RFB_VERSION.length) return "more";
      if (!bytes.subarray(0, RFB_VERSION.length).equals(RFB_VERSION)) return "refused";
      this.#stage = "choice";
      return { send: SECURITY_TYPES, isDone: false, used: RFB_VERSION.length };
    }
    if (bytes.length < 1) return "more";
    if (bytes[0] !== SECURITY_NONE) return "refused";
    return { send: SECURITY_OK, isDone: true, used: 1 };
  }
}

/** Runs a handshake over what has arrived. Returns what is left behind its end; null: it needs more, or was refused. */
export function advance(
  handshake: ServerHandshake | ClientHandshake,
  bytes: Buffer,
  send: (bytes: Buffer) => void,
): { readonly state: "more" | "done" | "refused"; readonly rest: Buffer } {
  let rest = bytes;
  for (;;) {
    const step = handshake.next(rest);
    if (step === "refused") return { state: "refused", rest };
    if (step === "more") return { state: rest.length > LIMITS.gui_handshake_bytes_max ? "refused" : "more", rest };
    rest = rest.subarray(step.used);
    if (step.send.length > 0) send(step.send);
    if (step.isDone) return { state: "done", rest };
  }
}

/** True if a ServerInit names a screen that a viewer can show. */
export function isServerInit(bytes: Buffer): boolean {
  const [width, height, name_bytes] = [bytes.readUInt16BE(0), bytes.readUInt16BE(2), bytes.readUInt32BE(20)];
  const isSide = (side: number) => side > 0 && side <= LIMITS.gui_side_max;
  return isSide(width) && isSide(height) && name_bytes <= LIMITS.gui_name_bytes_max;
}
