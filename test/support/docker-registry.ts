/** Debian's docker-registry on loopback, as a process of the test's own: plain or with TLS, open or with a password. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { eventually, freePort } from "./daemon.ts";
import { type Certificate, type MadeImage, OCI_MANIFEST, sha256 } from "./registry.ts";

export const REGISTRY_USER = { username: "ann", password: "open sesame" };
/** `htpasswd -nbB` of it. */
const HTPASSWD = "ann:$2y$04$dVS9bQo4aYT9EDXmtJRURejj7eRbtEkPiwgyiRpMke2YakiOfaAb.\n";

export interface DockerRegistryOptions {
  readonly certificate?: Certificate;
  readonly hasPassword?: boolean;
}

export class DockerRegistry {
  readonly directory = mkdtempSync("/var/tmp/hearth-registry-");
  #child: ChildProcess | null = null;
  host = "";

  /** Starts, or starts again with the same images. */
  async start({ certificate, hasPassword = false }: DockerRegistryOptions = {}): Promise<this> {
    await this.stop();
    const port = await freePort();
    this.host = `127.0.0.1:${port}`;
    const file = (name: string, text: string) => {
      writeFileSync(`${this.directory}/${name}`, text, { mode: 0o600 });
      return `${this.directory}/${name}`;
    };
    const configuration = {
      version: 0.1,
      log: { level: "error", accesslog: { disabled: true } },
      storage: { filesystem: { rootdirectory: `${this.directory}/images` } },
      http: {
        addr: this.host,
        ...(certificate === undefined
          ? {}
          : { tls: { certificate: file("cert.pem", certificate.cert), key: file("key.pem", certificate.key) } }),
      },
      ...(hasPassword ? { auth: { htpasswd: { realm: "test", path: file("htpasswd", HTPASSWD) } } } : {}),
    };
    // JSON is YAML.
    const child = spawn("docker-registry", ["serve", file("config.yml", JSON.stringify(configuration))], {
      stdio: "ignore",
    });
    this.#child = child;
    await eventually("the registry listens", () => {
      if (child.exitCode !== null) throw new Error(`docker-registry ended with ${child.exitCode}`);
      return isListening(port);
    });
    return this;
  }

  /** Uploads an image. `media_type`: of its manifest. Only without TLS and password. */
  async push(repository: string, tag: string, image: MadeImage, media_type = OCI_MANIFEST): Promise<void> {
    const { config, layers, manifest } = image;
    const base = `http://${this.host}/v2/${repository}`;
    for (const blob of [config, ...layers]) {
      const begun = await fetch(`${base}/blobs/uploads/`, { method: "POST" });
      const url = new URL(begun.headers.get("location") ?? "", base);
      url.searchParams.set("digest", sha256(blob));
      await expectCreated(
        fetch(url, { method: "PUT", body: blob, headers: { "content-type": "application/octet-stream" } }),
      );
    }
    await this.pushManifest(repository, tag, manifest, media_type);
  }

  async pushManifest(repository: string, tag: string, bytes: Buffer, media_type: string): Promise<void> {
    const url = `http://${this.host}/v2/${repository}/manifests/${tag}`;
    await expectCreated(fetch(url, { method: "PUT", body: bytes, headers: { "content-type": media_type } }));
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    this.#child = null;
    const exited = new Promise((resolve) => child.once("exit", resolve));
    if (child.exitCode === null && child.kill()) await exited;
  }

  async dispose(): Promise<void> {
    await this.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

async function expectCreated(answering: Promise<Response>): Promise<void> {
  const answer = await answering;
  if (answer.status !== 201) throw new Error(`upload answered ${answer.status}: ${await answer.text()}`);
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
