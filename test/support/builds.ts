/** Builds through the API: a context of some files, the operation, and a look into the result. */
import type { TarEntry } from "../../src/engine/files/tar.ts";
import { type Daemon, eventually, KEY } from "./daemon.ts";
import { EventReader } from "./event-stream.ts";
import { archive } from "./file-helper.ts";

// biome-ignore lint/suspicious/noExplicitAny: answers as they came.
type Json = any;

export type File = Partial<TarEntry> & { readonly content?: string | Buffer };

export class BuildUser {
  readonly #daemon: Daemon;
  readonly #headers: Record<string, string>;
  #count = 0;

  constructor(daemon: Daemon, key = KEY) {
    this.#daemon = daemon;
    this.#headers = { "x-api-key": key };
  }

  call(method: string, path: string, body?: object): Promise<{ status: number; body: Json }> {
    return this.#daemon.call(method, path, body, this.#headers);
  }

  /** Makes a tenant. Returns its user, and its id. */
  async tenant(name: string, limits: object = {}): Promise<{ readonly as: BuildUser; readonly tenant_id: string }> {
    const { tenant_id } = (await this.call("POST", "/api/tenants", { name, limits })).body;
    const { key } = (await this.call("POST", `/api/tenants/${tenant_id}/api-keys`, { name })).body;
    return { as: new BuildUser(this.#daemon, key), tenant_id };
  }

  async context(dockerfile: string, files: readonly File[] = []): Promise<string> {
    const content = archive({ name: "Dockerfile", content: dockerfile }, ...files).toString("base64");
    const { status, body } = await this.call("POST", "/api/build-contexts", { content });
    if (status !== 201) throw new Error(`context: ${status} ${JSON.stringify(body)}`);
    return body.context_id;
  }

  /** The answer of a build that is waited for: the operation, or the refusal. */
  async build(dockerfile: string, files: readonly File[] = [], fields: object = {}) {
    const context_id = await this.context(dockerfile, files);
    const image_reference = `localhost/built-${++this.#count}:1`;
    const path = "/api/oci/images/build?execution=sync";
    return this.call("POST", path, { context_id, image_reference, ...fields });
  }

  /** Builds, and throws unless it succeeds. Returns reference and id of the image. */
  async built(dockerfile: string, files: readonly File[] = [], fields: object = {}) {
    const { status, body } = await this.build(dockerfile, files, fields);
    if (status !== 200) throw new Error(`build: ${status} ${JSON.stringify(body)}`);
    return { ...body.result, message: body.message, operation_id: body.operation_id } as {
      readonly reference: string;
      readonly image_id: string;
      readonly message: string;
      readonly operation_id: string;
    };
  }

  async begin(dockerfile: string, files: readonly File[] = [], fields: object = {}): Promise<string> {
    const context_id = await this.context(dockerfile, files);
    const image_reference = `localhost/built-${++this.#count}:1`;
    const { status, body } = await this.call("POST", "/api/oci/images/build", {
      context_id,
      image_reference,
      ...fields,
    });
    if (status !== 202) throw new Error(`build: ${status} ${JSON.stringify(body)}`);
    return body.operation_id;
  }

  async operation(id: string, wait_seconds = 0): Promise<Json> {
    return (await this.call("GET", `/api/operations/${id}?wait_seconds=${wait_seconds}`)).body;
  }

  /** Events of a build that has ended: `stream` and `text` of each. */
  async log(
    operation_id: string,
  ): Promise<readonly { readonly stream: string; readonly text: string; step: number }[]> {
    const query = `?last_event_id=0&operation_id=${operation_id}`;
    const reader = await EventReader.open(this.#daemon.url, query, this.#headers);
    await eventually("the end", () =>
      reader.events.some(({ data }) => data.event_type === "succeeded" || data.event_type === "failed"),
    );
    reader.close();
    return reader.events.filter(({ data }) => data.event_type === "build_log").map(({ data }) => data.data ?? data);
  }

  /** What a shell line prints in a container of an image. */
  async look(reference: string, line: string): Promise<string> {
    const name = `look-${++this.#count}`;
    const fields = { name, image: reference, oci: true, entrypoint: [], command: ["sleep", "600"], user: "root" };
    const made = await this.call("POST", "/api/containers", fields);
    if (made.status !== 201) throw new Error(`container: ${made.status} ${JSON.stringify(made.body)}`);
    const { body } = await this.call("POST", `/api/containers/${name}/exec`, { command: ["sh", "-c", line] });
    await this.call("DELETE", `/api/containers/${name}`);
    return `${body.stdout}${body.stderr}`;
  }
}
