/**
 * The sockets of API containers. Each run has a directory of its own in its bundle, which the container sees read-only as
 * /run/hearth. The mount is of the directory: a later daemon puts another socket there, and the container sees it at once.
 * The directory ends with the bundle. Another part of the daemon listens (`SocketListener`).
 *
 * K1. Only root enters the directories above, and nothing inside a container can write to its directory.
 * K2. The listener is told of the end of each socket that it was told of, before another run of the container gets one.
 */
import { chmodSync, constants, existsSync, mkdirSync } from "node:fs";
import { isBelow } from "../../base/mount-targets.ts";
import { type Mount, SOCKET_DIRECTORY } from "../bundles/container.ts";
import { resolveTarget } from "../gpu/targets.ts";
import { remainsOf } from "../host/adoption.ts";
import type { EngineHost } from "../host/host.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { ContainerSocket, ContainerSpec, SocketListener } from "../ports/containers.ts";

interface SocketPlace {
  readonly spec: ContainerSpec;
  readonly run: string;
  /** Its root, as the launcher sees it. */
  readonly rootfs: string;
}

const FILE = "icc.sock";

export class ContainerSockets {
  readonly #host: EngineHost;
  /** By container. */
  readonly #open = new Map<string, ContainerSocket>();
  #listener: SocketListener | null = null;

  constructor(host: EngineHost) {
    this.#host = host;
  }

  serve(listener: SocketListener): void {
    this.#listener = listener;
    for (const socket of this.#open.values()) listener.open(socket);
  }

  /** Makes the socket of a run that starts. Returns the mount; null for none. */
  async begin(launcher: LauncherClient, place: SocketPlace): Promise<Mount | null> {
    const { spec, run } = place;
    if (spec.has_socket !== true) return null;
    const target = await this.#target(launcher, place);
    if (target === null) {
      this.#host.options.log.warn("container without a socket: its files or volumes are in the way", { id: spec.id });
      return null;
    }
    const { bundle } = remainsOf(this.#host.containers, run, true);
    const source = directoryOf(bundle);
    mkdirSync(bundle, { recursive: true, mode: 0o700 });
    mkdirSync(source);
    // Every user inside enters it, whatever the umask of this process.
    chmodSync(source, 0o755);
    this.#add({ container_id: spec.id, tenant_id: spec.tenant_id, path: `${source}/${FILE}` });
    return { source, target };
  }

  /** Takes over the socket of a container that an earlier process started. */
  adopt(container_id: string, run: string): void {
    const source = directoryOf(remainsOf(this.#host.containers, run, false).bundle);
    const tenant_id = this.#host.tenants.tenantOf(run);
    if (tenant_id !== null && existsSync(source)) this.#add({ container_id, tenant_id, path: `${source}/${FILE}` });
  }

  /** K2. Harmless for a container without a socket. */
  end(container_id: string): void {
    if (this.#open.delete(container_id)) this.#listener?.close(container_id);
  }

  #add(socket: ContainerSocket): void {
    this.#open.set(socket.container_id, socket);
    this.#listener?.open(socket);
  }

  /**
   * Returns the mount point, without links. Null: something else than directories is there, or a volume covers it, which
   * other containers may change during the mount.
   */
  async #target(launcher: LauncherClient, { spec, rootfs }: SocketPlace): Promise<string | null> {
    const volumes = spec.volumes.map(({ target }) => target);
    if (volumes.some((target) => isBelow(SOCKET_DIRECTORY, target) || isBelow(target, SOCKET_DIRECTORY))) return null;
    const areDirectories = async (path: string) => {
      const modes = await Promise.all(pathsTo(path).map((one) => launcher.lstatInRoot(rootfs, one)));
      return modes.every((mode) => mode === null || (mode & constants.S_IFMT) === constants.S_IFDIR);
    };
    if (await areDirectories(SOCKET_DIRECTORY)) return SOCKET_DIRECTORY;
    const root = `${this.#host.launcherRoot}${rootfs}`;
    const target = await resolveTarget(root, SOCKET_DIRECTORY, volumes).catch(() => null);
    return target !== null && (await areDirectories(target)) ? target : null;
  }
}

const directoryOf = (bundle: string): string => `${bundle}/icc`;

/** The path and all above it but the root. */
function pathsTo(path: string): string[] {
  const parts = path.split("/").slice(1);
  return parts.map((_, i) => `/${parts.slice(0, i + 1).join("/")}`);
}
