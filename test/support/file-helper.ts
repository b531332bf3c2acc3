/** The file helper alone: sessions of it on directories of this machine, in a launcher of the test's own. */
import { join } from "node:path";
import { type Clock, systemClock } from "../../src/base/clock.ts";
import { HelperSession } from "../../src/engine/files/file-sessions.ts";
import { type TarEntry, tarEnd, tarHeader, tarPadding } from "../../src/engine/files/tar.ts";
import { LauncherClient } from "../../src/engine/launcher/launcher.ts";
import { Native } from "./native.ts";

export class FileHelper {
  readonly native: Native;
  readonly launcher: LauncherClient;
  #sessions = 0;

  private constructor(native: Native) {
    this.native = native;
    this.launcher = new LauncherClient(join(native.directory, "launcher.sock"), systemClock);
  }

  static async start(): Promise<FileHelper> {
    return new FileHelper(await Native.start());
  }

  async stop(): Promise<void> {
    this.launcher.close();
    await this.native.stop();
  }

  /** Path of the next session's socket. */
  socketPath(): string {
    return join(this.native.directory, `files${this.#sessions++}.sock`);
  }

  /** A session in a tree. */
  open(root: string, more: { uid_base?: number; clock?: Clock; socket_path?: string } = {}): Promise<HelperSession> {
    const { launcher, native } = this;
    const { uid_base = 0, clock = systemClock, socket_path = this.socketPath() } = more;
    return HelperSession.open({ launcher, minit: native.binary, root, socket_path, clock, uid_base });
  }
}

/** An empty file; its header lacks a name. */
export const ENTRY: TarEntry = {
  type: "file",
  name: "",
  link: "",
  size: 0,
  mode: 0o644,
  uid: 0,
  gid: 0,
  mtime_ms: 1e12,
};

/** An archive of exactly these entries, each with its content. */
export function archive(...entries: (Partial<TarEntry> & { readonly content?: string | Buffer })[]): Buffer {
  const parts = entries.flatMap(({ content = "", ...entry }) => {
    const bytes = typeof content === "string" ? Buffer.from(content) : content;
    return [tarHeader({ ...ENTRY, size: bytes.length, ...entry }), bytes, tarPadding(bytes.length)];
  });
  return Buffer.concat([...parts, tarEnd()]);
}

/** Bytes in pieces, as an archive comes over a connection. */
export async function* inPieces(bytes: Buffer, piece_bytes = 1000) {
  for (let i = 0; i < bytes.length; i += piece_bytes) yield bytes.subarray(i, i + piece_bytes);
}
