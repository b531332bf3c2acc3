/** A user who brings code: archives, uploads and deployments, as one tenant of a daemon. */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type Answer, type Daemon, eventually, KEY } from "./daemon.ts";

/** Files by path. */
export type Tree = Readonly<Record<string, string | Buffer>>;

export const NODEJS = { runtime: "nodejs", handler: "index.mjs#handler" };
export const PYTHON3 = { runtime: "python3", handler: "main.py:handler" };

/** Writes files by path into a folder, which it makes. Paths that end in `.sh` are executable. */
export function writeTree(root: string, files: Tree): void {
  for (const [path, content] of Object.entries(files)) {
    const file = join(root, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
    chmodSync(file, path.endsWith(".sh") ? 0o755 : 0o644);
  }
}

/** Returns a tar.gz of a folder. */
function archiveOf(folder: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(execFileSync("tar", ["-C", folder, "-czf", "-", "."], { maxBuffer: 256 << 20 }));
}

/** Returns a tar.gz of files by path. Paths that end in `.sh` are executable. */
export function archive(files: Tree): Uint8Array<ArrayBuffer> {
  const root = mkdtempSync(join(tmpdir(), "hearth-tree-"));
  try {
    writeTree(root, files);
    return archiveOf(root);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

export class CodeUser {
  readonly #daemon: Daemon;
  readonly key: string;

  constructor(daemon: Daemon, key = KEY) {
    this.#daemon = daemon;
    this.key = key;
  }

  /** Makes a tenant with a key of these scopes. */
  static async ofTenant(
    daemon: Daemon,
    name: string,
    { scopes = ["read", "write", "invoke"], limits = {} }: { scopes?: readonly string[]; limits?: object } = {},
  ): Promise<CodeUser & { readonly tenant_id: string }> {
    const { tenant_id } = (await daemon.call("POST", "/api/tenants", { name, limits })).body;
    const made = await daemon.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name, scopes });
    return Object.assign(new CodeUser(daemon, made.body.key), { tenant_id });
  }

  call(method: string, path: string, body?: unknown): Promise<Answer> {
    return this.#daemon.call(method, path, body, { "x-api-key": this.key });
  }

  /** Sends JSON as it is written. Returns the answer as it came. */
  async raw(method: string, path: string, body?: string): Promise<string> {
    const headers = { "x-api-key": this.key, "content-type": "application/json" };
    const response = await fetch(this.#daemon.url + path, { method, headers, ...(body === undefined ? {} : { body }) });
    return response.text();
  }

  /** Sends a raw body. */
  async send(
    method: string,
    path: string,
    body: Uint8Array<ArrayBuffer> | ReadableStream,
    type = "application/gzip",
  ): Promise<Answer> {
    const response = await fetch(this.#daemon.url + path, {
      method,
      headers: { "x-api-key": this.key, "content-type": type },
      body,
      // A stream as body needs it.
      duplex: "half",
    });
    return { status: response.status, headers: response.headers, body: await response.json() };
  }

  /** Uploads code, as files or as the path of a folder, and returns its digest. */
  async upload(code: Tree | string): Promise<string> {
    const packed = typeof code === "string" ? archiveOf(code) : archive(code);
    const { status, body } = await this.send("POST", "/api/functions/code", packed);
    if (status !== 201) throw new Error(`upload answered ${status}: ${JSON.stringify(body)}`);
    return body.code_sha256;
  }

  deployments(functions: readonly object[], more: object = {}): Promise<Answer> {
    return this.call("POST", "/api/functions/deployments", { functions, ...more });
  }

  /** The answer to the deployment of one function with code. */
  async tryDeploy(name: string, code: Tree | string, fields: object): Promise<Answer> {
    return this.deployments([{ name, code_sha256: await this.upload(code), ...fields }]);
  }

  /** Deploys one function with code; returns its id. */
  async deploy(name: string, code: Tree | string, fields: object): Promise<string> {
    return deployedId(name, await this.tryDeploy(name, code, fields));
  }

  /** Invokes by name; returns the record. */
  // biome-ignore lint/suspicious/noExplicitAny: the record as it came.
  async invoke(name: string, payload: unknown = null, more: object = {}): Promise<any> {
    const { status, body } = await this.call("POST", `/api/functions/invoke/${name}`, { payload, ...more });
    if (status !== 200) throw new Error(`invoke of ${name} answered ${status}: ${JSON.stringify(body)}`);
    return body;
  }

  /** Waits until the function has this many instances. */
  async instances(function_id: string, count: number): Promise<void> {
    await eventually(`${function_id} has ${count} instances`, async () => {
      const { body } = await this.call("GET", `/api/functions/${function_id}/pool`);
      return body.total_count === count;
    });
  }
}

function deployedId(name: string, { status, body }: Answer): string {
  if (status !== 200) throw new Error(`deployment of ${name} answered ${status}: ${JSON.stringify(body)}`);
  return body.functions[0].function_id;
}
