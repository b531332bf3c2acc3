/**
 * The part of git's protocol that a fetch of one commit needs: version 2 over HTTP (git's Documentation/gitprotocol-v2.txt and
 * gitprotocol-http.txt). Nothing that a host sends is held but one packet of at most 64 KiB.
 *
 * Not the package isomorphic-git: it holds a whole pack in memory, and inflates what is in it without a bound.
 */
import type { AppError } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";
import type { Outgoing, OutgoingOpening, OutgoingStream } from "../../../base/outgoing-requests.ts";
import { COMMIT } from "./source.ts";

/** A ref of a repository, and what it leads to. */
export interface FoundCommit {
  readonly commit: string;
  /** The object of an annotated tag; null: the ref names the commit. */
  readonly tag: string | null;
}

export interface GitHostOptions {
  readonly outgoing: Outgoing;
  readonly opening: Omit<OutgoingOpening, "bytes_max" | "headers" | "body" | "common_headers">;
  /** Makes the error of what the host answered. */
  readonly refuse: (why: string) => AppError;
}

/** Packets that are no data (gitprotocol-common.txt): the end of a list or a section. */
const FLUSH = "0000";
const DELIMITER = "0001";
const LENGTH_BYTES = 4;
const OK = 200;
const SERVICE = "git-upload-pack";
const MIB = 1024 * 1024;
/** First byte of a packet with a piece of the pack, and of one with an error of the host. */
const BAND_DATA = 1;
const BAND_ERROR = 3;

export function packet(text: string): string {
  return (Buffer.byteLength(text) + LENGTH_BYTES).toString(16).padStart(LENGTH_BYTES, "0") + text;
}

/** Yields the content of packets; null for the end of a list or a section. Throws what `refuse` returns for what is no packet. */
export async function* packets(
  source: AsyncIterable<Buffer>,
  refuse: (why: string) => AppError,
): AsyncGenerator<Buffer | null, void, undefined> {
  let left: Buffer = Buffer.alloc(0);
  for await (const piece of source) {
    left = left.length === 0 ? piece : Buffer.concat([left, piece]);
    while (left.length >= LENGTH_BYTES) {
      const digits = left.toString("latin1", 0, LENGTH_BYTES);
      const length = /^[0-9a-f]{4}$/i.test(digits) ? Number.parseInt(digits, 16) : Number.NaN;
      if (Number.isNaN(length) || length === 3) throw refuse("the host did not answer in git's protocol");
      if (length < LENGTH_BYTES) {
        left = left.subarray(LENGTH_BYTES);
        yield null;
        continue;
      }
      if (left.length < length) break;
      const content = left.subarray(LENGTH_BYTES, length);
      left = left.subarray(length);
      if (content.toString("latin1", 0, 4) === "ERR ") {
        throw refuse(`the host answered: ${printable(content.toString("utf8", 4))}`);
      }
      yield content;
    }
  }
  if (left.length > 0) throw refuse("the answer of the host is truncated");
}

const printable = (text: string): string =>
  text
    .replace(/[^\x20-\x7e]+/g, " ")
    .trim()
    .slice(0, 200);

/** One repository on a host. */
export class GitHost {
  readonly #options: GitHostOptions;
  /** Where a redirect led. */
  readonly #base: string;

  private constructor(options: GitHostOptions, base: string) {
    this.#options = options;
    this.#base = base;
  }

  /** Throws what `refuse` returns, and what the guard throws. */
  static async open(repository: string, options: GitHostOptions): Promise<GitHost> {
    const { outgoing, opening, refuse } = options;
    const path = `/info/refs?service=${SERVICE}`;
    const answer = await outgoing.open(`${repository}${path}`, {
      ...opening,
      bytes_max: LIMITS.build_git_refs_mb_max * MIB,
      common_headers: { "git-protocol": "version=2" },
    });
    try {
      if (answer.status !== OK) throw refuse(`the host answered ${answer.status} (expected ${OK})`);
      if (!answer.url.endsWith(path)) throw refuse("the host redirects to what is no repository");
      await checkCapabilities(answer.body, refuse);
      return new GitHost(options, answer.url.slice(0, -path.length));
    } finally {
      answer.close();
    }
  }

  /** The commit of a ref, as BuildKit looks for it: a branch before a tag before another ref. Null: the default branch. */
  async find(ref: string | null): Promise<FoundCommit> {
    const { refuse } = this.#options;
    const within = (space: string) => `refs/${space}/${(ref ?? "").replace(new RegExp(`^refs/${space}/`), "")}`;
    const names =
      ref === null ? ["HEAD"] : [within("heads"), within("tags"), `refs/${ref.replace(/^refs\//, "")}`, ref];
    const lines = [...new Set(names)].map((name) => packet(`ref-prefix ${name}\n`)).join("");
    const request = packet("command=ls-refs\n") + DELIMITER + packet("peel\n") + lines + FLUSH;
    const answer = await this.#post(request, LIMITS.build_git_refs_mb_max * MIB);
    const found = new Map<string, FoundCommit>();
    try {
      for await (const content of packets(answer.body, refuse)) {
        if (content === null) break;
        const [id = "", name = "", ...attributes] = content.toString("utf8").trimEnd().split(" ");
        if (!names.includes(name) || !COMMIT.test(id)) continue;
        const peeled = attributes.find((one) => one.startsWith("peeled:"))?.slice("peeled:".length);
        if (peeled !== undefined && !COMMIT.test(peeled)) throw refuse("the host sent a malformed ref");
        found.set(name, peeled === undefined ? { commit: id, tag: null } : { commit: peeled, tag: id });
      }
    } finally {
      answer.close();
    }
    const first = names.map((name) => found.get(name)).find((one) => one !== undefined);
    if (first !== undefined) return first;
    if (ref === null) throw refuse("the repository has no default branch");
    throw refuse(`the repository has no branch or tag '${ref}' (a commit is named by all its 40 digits)`);
  }

  /** Yields the pack with a commit and all of its tree. */
  async *pack(commit: string, bytes_max: number): AsyncGenerator<Buffer, void, undefined> {
    const { refuse } = this.#options;
    const lines = ["no-progress\n", "ofs-delta\n", "deepen 1\n", `want ${commit}\n`, "done\n"].map(packet).join("");
    const request = packet("command=fetch\n") + DELIMITER + lines + FLUSH;
    const answer = await this.#post(request, bytes_max);
    let isPack = false;
    try {
      for await (const content of packets(answer.body, refuse)) {
        if (!isPack) {
          isPack = content?.toString("latin1").trimEnd() === "packfile";
        } else if (content === null) {
          return;
        } else if (content[0] === BAND_DATA) {
          yield content.subarray(1);
        } else if (content[0] === BAND_ERROR) {
          throw refuse(`the host answered: ${printable(content.toString("utf8", 1))}`);
        }
      }
    } finally {
      answer.close();
    }
    throw refuse(isPack ? "the answer of the host is truncated" : "the host sent no files");
  }

  async #post(body: string, bytes_max: number): Promise<OutgoingStream> {
    const { outgoing, opening, refuse } = this.#options;
    const answer = await outgoing.open(`${this.#base}/${SERVICE}`, {
      ...{ ...opening, bytes_max, body },
      headers: {
        "git-protocol": "version=2",
        "content-type": `application/x-${SERVICE}-request`,
        accept: `application/x-${SERVICE}-result`,
      },
    });
    if (answer.status === OK) return answer;
    answer.close();
    throw refuse(`the host answered ${answer.status} (expected ${OK})`);
  }
}

/** Reads the list of what a host can do. */
async function checkCapabilities(body: AsyncIterable<Buffer>, refuse: (why: string) => AppError): Promise<void> {
  let isTold = false;
  for await (const content of packets(body, refuse)) {
    const line = content?.toString("utf8").trimEnd() ?? "";
    if (line === "" || line.startsWith("# service=")) {
      if (isTold) return;
    } else if (!isTold) {
      if (line !== "version 2") throw refuse("the host does not speak version 2 of git's protocol");
      isTold = true;
    } else if (line.startsWith("object-format=") && line !== "object-format=sha1") {
      throw refuse(`the repository has other ids than SHA-1: ${printable(line)}`);
    }
  }
  if (!isTold) throw refuse("the host did not answer in git's protocol");
}
