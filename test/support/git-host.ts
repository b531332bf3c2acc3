/** A host of git repositories over HTTP: git's own CGI program behind a server on loopback, and repositories that tests make. */
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const HEADERS_END = "\r\n\r\n";
const ENVIRONMENT = {
  ...{ PATH: process.env.PATH ?? "", HOME: "/nonexistent", GIT_CONFIG_NOSYSTEM: "1" },
  ...{ GIT_AUTHOR_NAME: "a", GIT_AUTHOR_EMAIL: "a@b", GIT_AUTHOR_DATE: "1445412480 +0000" },
  ...{ GIT_COMMITTER_NAME: "a", GIT_COMMITTER_EMAIL: "a@b", GIT_COMMITTER_DATE: "1445412480 +0000" },
};

/** Runs git in a folder. Returns what it prints. */
export function git(folder: string, args: readonly string[], input?: string | Buffer): string {
  const options = { cwd: folder, env: ENVIRONMENT, ...(input === undefined ? {} : { input }) };
  return execFileSync("git", ["-c", "init.defaultBranch=main", ...args], { ...options, encoding: "utf8" }).trim();
}

export class GitHost {
  readonly root = mkdtempSync(join(tmpdir(), "hearth-git-"));
  /** Method and path of each request. */
  readonly asked: string[] = [];
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  static async open(): Promise<GitHost> {
    const host = new GitHost();
    await new Promise<void>((resolve) => host.#server.listen(0, "127.0.0.1", resolve));
    return host;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Makes an empty repository. Returns its folder, which is no bare one. */
  make(name: string): string {
    const folder = join(this.root, name);
    mkdirSync(folder, { recursive: true });
    git(folder, ["init", "--quiet"]);
    return folder;
  }

  close(): void {
    this.#server.close();
    rmSync(this.root, { recursive: true });
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    this.asked.push(`${request.method} ${request.url}`);
    const [path = "", query = ""] = (request.url ?? "").split("?");
    const moved = /^\/moved(\/.*)$/.exec(request.url ?? "")?.[1];
    if (moved !== undefined) {
      response.writeHead(301, { location: moved }).end();
      return;
    }
    const program = spawn("git", ["-c", "safe.directory=*", "http-backend"], {
      env: {
        ...{ ...ENVIRONMENT, GIT_PROJECT_ROOT: this.root, GIT_HTTP_EXPORT_ALL: "1" },
        ...{ PATH_INFO: path.replace(/\.git(?=\/)/, "/.git"), QUERY_STRING: query },
        ...{ REQUEST_METHOD: request.method ?? "", CONTENT_TYPE: request.headers["content-type"] ?? "" },
        ...{ GIT_PROTOCOL: String(request.headers["git-protocol"] ?? "") },
        ...{ GIT_CONFIG_COUNT: "1", GIT_CONFIG_KEY_0: "safe.directory", GIT_CONFIG_VALUE_0: "*" },
      },
      stdio: ["pipe", "pipe", "ignore"],
    });
    request.pipe(program.stdin);
    const parts: Buffer[] = [];
    program.stdout.on("data", (part: Buffer) => parts.push(part));
    program.on("close", () => {
      const answer = Buffer.concat(parts);
      const end = answer.indexOf(HEADERS_END);
      const headers = answer.toString("latin1", 0, end).split("\r\n");
      const pairs = headers.map((line) => line.split(": ", 2) as [string, string]);
      const status = Number(pairs.find(([name]) => name === "Status")?.[1]?.slice(0, 3) ?? 200);
      response.writeHead(status, Object.fromEntries(pairs.filter(([name]) => name !== "Status")));
      response.end(answer.subarray(end + HEADERS_END.length));
    });
  }
}
