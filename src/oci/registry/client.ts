/**
 * A client of one repository of one registry, for one pull.
 *
 * C1. Every request passes the guard of outgoing requests.
 * C2. A failure that may pass is retried a bounded number of times. A blob resumes by Range where its connection broke. A host that
 *     never answered is not asked again: its caller waits for the reason.
 * C3. Every rejection is an AppError that names the registry.
 */
import { createHash } from "node:crypto";
import { AppError } from "../../base/errors.ts";
import { ANSWER_TOO_LARGE, type OutgoingStream } from "../../base/outgoing-requests.ts";
import { type ConnectionOptions, RegistryConnection } from "./connection.ts";
import { connectionFailure, lacking, shownHost, statusFailure, wrongAnswer } from "./failures.ts";

export const INDEX_TYPES: readonly string[] = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
];
export const MANIFEST_TYPES: readonly string[] = [
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
];
const MANIFEST_ACCEPT = [...INDEX_TYPES, ...MANIFEST_TYPES].join(", ");
const BLOB_ACCEPT = "application/octet-stream, */*";
/** Answers to one request with a challenge: one of a stale token, one of none. */
export const CHALLENGES_MAX = 2;

/** A manifest as a registry serves it. */
export interface FetchedManifest {
  readonly bytes: Buffer;
  /** Without its parameters, in lower case; empty if the answer has none. */
  readonly media_type: string;
  /** `sha256:…` of the bytes. */
  readonly digest: string;
}

interface Asked {
  /** For errors: what is asked for. */
  readonly subject: string;
  readonly accept: string;
  readonly timeout_ms: number;
  readonly bytes_max: number;
  /** First byte of a blob that is missing. */
  readonly offset?: number;
}

export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

export class RegistryClient {
  readonly #options: ConnectionOptions;
  readonly #connection: RegistryConnection;
  #isGreeted = false;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#connection = new RegistryConnection(options);
  }

  /** Fetches a manifest by its tag or digest. Checks its size, not its content. NOT_FOUND if the registry lacks it. */
  async manifest(reference: string, subject: string): Promise<FetchedManifest> {
    const { limits, host } = this.#options;
    return this.#connection.retried(async () => {
      await this.#greet();
      const { registry_answer_ms: timeout_ms, manifest_bytes_max: bytes_max } = limits;
      const asked = { subject, accept: MANIFEST_ACCEPT, timeout_ms, bytes_max };
      const answer = await this.#ask(`manifests/${reference}`, asked);
      const [media_type = ""] = (answer.headers["content-type"] ?? "").split(";");
      if (/html/i.test(media_type)) {
        answer.close();
        throw wrongAnswer(host, `${media_type.slice(0, 64)} instead of a manifest`);
      }
      const chunks: Buffer[] = [];
      for await (const chunk of this.#bodyOf(answer, asked)) chunks.push(chunk);
      const bytes = Buffer.concat(chunks);
      return { bytes, media_type: media_type.trim().toLowerCase(), digest: digestOf(bytes) };
    });
  }

  /** Fetches a blob that fits in memory. Rejects with IMAGE_INVALID unless it has its digest and size. */
  async blob({ digest, size }: { readonly digest: string; readonly size: number }, subject: string): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for await (const chunk of this.stream({ digest, size }, subject)) chunks.push(chunk);
    const bytes = Buffer.concat(chunks);
    if (digestOf(bytes) !== digest) throw this.#invalid(subject, "differs from its digest");
    return bytes;
  }

  /** Yields the bytes of a blob, exactly `size` of them. Does not check the digest. */
  async *stream(
    { digest, size }: { readonly digest: string; readonly size: number },
    subject: string,
  ): AsyncGenerator<Buffer> {
    const { limits } = this.#options;
    let offset = 0;
    let attempt = 1;
    for (let resumes = 0; ; resumes++) {
      const began = offset;
      try {
        for await (const chunk of this.#part(digest, size, offset, subject)) {
          offset += chunk.length;
          yield chunk;
        }
        return;
      } catch (failure) {
        if (offset - began >= limits.registry_progress_bytes) attempt = 1;
        if (resumes >= limits.registry_resumes_max || !this.#connection.mayRetry(failure, attempt)) throw failure;
        await this.#connection.pause(attempt++, failure);
      }
    }
  }

  /** Yields the bytes of a blob from `offset` on. */
  async *#part(digest: string, size: number, offset: number, subject: string): AsyncGenerator<Buffer> {
    const { limits, host } = this.#options;
    const asked = {
      ...{ subject, accept: BLOB_ACCEPT, offset },
      ...{ timeout_ms: limits.registry_layer_ms, bytes_max: limits.image_bytes_max },
    };
    const answer = await this.#ask(`blobs/${digest}`, asked).catch((error) => {
      throw lacking(error, subject);
    });
    try {
      // A host that ignores the range sends all of it again.
      let skipped = answer.status === 206 ? 0 : offset;
      const left = size - offset + skipped;
      const { "content-length": declared, "content-type": type = "" } = answer.headers;
      if (/html/i.test(type) && declared !== String(left)) throw wrongAnswer(host, `HTML instead of ${subject}`);
      if (declared !== undefined && declared !== String(left)) throw this.#wrongSize(subject, size);
      let bytes = 0;
      for await (const chunk of this.#bodyOf(answer, asked)) {
        bytes += chunk.length;
        if (bytes > left) throw this.#wrongSize(subject, size);
        const fresh = chunk.subarray(Math.min(skipped, chunk.length));
        skipped -= chunk.length - fresh.length;
        if (fresh.length > 0) yield fresh;
      }
      if (bytes < left) throw this.#wrongSize(subject, size);
    } finally {
      answer.close();
    }
  }

  /** Yields the body of an answer; its failures are those of the registry. */
  async *#bodyOf(answer: OutgoingStream, asked: Asked): AsyncGenerator<Buffer> {
    try {
      yield* answer.body;
    } catch (error) {
      throw this.#failureOf(error, asked);
    }
  }

  #wrongSize(subject: string, size: number): AppError {
    return this.#invalid(subject, `differs from its size (expected ${size} bytes)`);
  }

  #invalid(subject: string, problem: string): AppError {
    return new AppError("IMAGE_INVALID", `${subject} of registry ${shownHost(this.#options.host)} ${problem}`);
  }

  /** With credentials the registry is asked first who may come: some answer 404 for what they hide. */
  async #greet(): Promise<void> {
    if (this.#isGreeted || !this.#connection.authorization.hasCredentials) return;
    const { limits } = this.#options;
    const asked = { subject: "this user", accept: "application/json", timeout_ms: limits.registry_answer_ms };
    const answer = await this.#sent("", { ...asked, bytes_max: limits.manifest_bytes_max });
    answer.close();
    if (answer.status === 401) await this.#challenged(answer, null, "this user");
    this.#isGreeted = true;
  }

  /** Resolves with an answer that succeeded. */
  async #ask(path: string, asked: Asked): Promise<OutgoingStream> {
    const { host, repository } = this.#options;
    for (let challenges = 0; ; challenges++) {
      const used = this.#connection.authorization.header;
      const answer = await this.#sent(`${repository}/${path}`, asked);
      const isWhole = answer.status === 200;
      if (isWhole || (answer.status === 206 && this.#isFrom(answer, asked.offset ?? 0))) return answer;
      answer.close();
      if (answer.status !== 401 || challenges >= CHALLENGES_MAX) {
        throw statusFailure(answer, host, asked.subject, this.#connection.authorization.hasCredentials);
      }
      await this.#challenged(answer, used, asked.subject);
    }
  }

  #isFrom({ headers }: OutgoingStream, offset: number): boolean {
    const [, first] = /^bytes (\d+)-/.exec(headers["content-range"] ?? "") ?? [];
    return offset > 0 && Number(first) === offset;
  }

  async #challenged({ headers }: OutgoingStream, used: string | null, subject: string): Promise<void> {
    await this.#connection.authorization.answer(headers["www-authenticate"] ?? "", used, subject);
  }

  async #sent(path: string, asked: Asked): Promise<OutgoingStream> {
    return this.#connection
      .reach((origin) => this.#opened(origin, path, asked))
      .catch((error) => {
        throw this.#failureOf(error, asked);
      });
  }

  #opened(origin: string, path: string, asked: Asked): Promise<OutgoingStream> {
    const { outgoing, host, limits, signal } = this.#options;
    const { header } = this.#connection.authorization;
    const offset = asked.offset ?? 0;
    return outgoing.open(`${origin}/v2/${path}`, {
      headers: header === null ? {} : { authorization: header },
      common_headers: {
        accept: asked.accept,
        "user-agent": "hearth",
        ...(offset === 0 ? {} : { range: `bytes=${offset}-` }),
      },
      timeout_ms: asked.timeout_ms,
      bytes_max: asked.bytes_max,
      silence_ms: limits.registry_silence_ms,
      silence_bytes_min: limits.registry_silence_bytes_min,
      listed: host.listed,
      authorities: host.authorities,
      signal,
    });
  }

  #failureOf(error: unknown, { subject, bytes_max }: Asked): unknown {
    const { host, signal } = this.#options;
    if (signal.aborted) return signal.reason;
    if (error instanceof AppError && error.reason_code === ANSWER_TOO_LARGE) {
      return this.#invalid(subject, `is too large (limit ${bytes_max} bytes)`);
    }
    return connectionFailure(error, host);
  }
}
