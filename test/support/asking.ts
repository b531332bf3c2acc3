/** Requests with the key of some tenant, without one the operator's. */
import { type Answer, type Daemon, KEY } from "./daemon.ts";

type Json = Answer["body"];

export function askingOf(daemon: Daemon) {
  /** Returns the body of a success. Throws on a refusal. */
  const ok = async (method: string, path: string, body?: unknown, key = KEY): Promise<Json> => {
    const answer = await daemon.call(method, path, body, { "x-api-key": key });
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  return {
    ok,
    /** Returns the status and the error code. */
    refusal: async (method: string, path: string, body?: unknown, key = KEY): Promise<[number, string]> => {
      const { status, body: told } = await daemon.call(method, path, body, { "x-api-key": key });
      return [status, told.error_code];
    },
    /** Makes a tenant and returns its first key. */
    makeTenant: async (name: string): Promise<string> => {
      const { tenant_id } = await ok("POST", "/api/tenants", { name });
      return (await ok("POST", `/api/tenants/${tenant_id}/api-keys`, { name: "first" })).key;
    },
  };
}
