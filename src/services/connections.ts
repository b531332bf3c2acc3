/** Connections of clients that a tenant's services have, each counted for the first tenant that it was authenticated for. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { LIMITS } from "../base/limits.ts";

export class TenantConnections {
  readonly #known = new WeakSet<Socket>();
  readonly #counts = new Map<string, number>();

  /** Returns false if the tenant has too many: the connection is to end with its response. */
  note({ socket }: Pick<IncomingMessage, "socket">, tenant_id: string): boolean {
    if (this.#known.has(socket)) return true;
    const count = this.#counts.get(tenant_id) ?? 0;
    if (count >= LIMITS.service_connections_per_tenant_max) return false;
    this.#known.add(socket);
    this.#counts.set(tenant_id, count + 1);
    socket.once("close", () => {
      const left = (this.#counts.get(tenant_id) ?? 1) - 1;
      if (left > 0) this.#counts.set(tenant_id, left);
      else this.#counts.delete(tenant_id);
    });
    return true;
  }
}
