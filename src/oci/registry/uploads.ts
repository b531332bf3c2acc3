/**
 * Uploads to one repository of one registry, for one push.
 *
 * U1. Every request passes the guard of outgoing requests, and goes to the registry itself, never to a mirror.
 * U2. The registry names the place of each upload. Credentials go there only if it is the registry's own origin; another place
 *     gets the bytes alone. A redirect of an upload is refused.
 * U3. A blob that the registry has is not sent again. A failure that may pass is retried a bounded number of times, each from the
 *     beginning of its blob.
 * U4. Every rejection is an AppError that names the registry.
 */
import { AppError } from "../../base/errors.ts";
import type { Outgoing, OutgoingAnswer } from "../../base/outgoing-requests.ts";
import { CHALLENGES_MAX, digestOf } from "./client.ts";
import { type ConnectionOptions, RegistryConnection } from "./connection.ts";
import { connectionFailure, shownHost, statusFailure, wrongAnswer } from "./failures.ts";

export interface Blob {
  readonly digest: string;
  readonly size_bytes: number;
  /** Reads it from its beginning. */
  open(): AsyncIterable<Uint8Array>;
}

type Sending = Parameters<Outgoing["request"]>[1];

export class RegistryUploads {
  readonly #options: ConnectionOptions;
  readonly #connection: RegistryConnection;

  constructor(options: Omit<ConnectionOptions, "actions">) {
    this.#options = { ...options, actions: "pull,push" };
    this.#connection = new RegistryConnection(this.#options);
  }

  /**
   * Makes the registry have a blob. Resolves with the bytes that were sent: none if it had the blob. `onSent`: bytes of it that the
   * registry has taken; it begins again with each attempt.
   */
  async blob(blob: Blob, subject: string, onSent: (bytes: number) => void): Promise<number> {
    return this.#connection.retried(async () => {
      if (await this.#has(blob, subject)) return 0;
      await this.#upload(blob, subject, onSent);
      return blob.size_bytes;
    });
  }

  /** Rejects unless the registry answers for the repository: with the blob of no bytes, or that it has none. */
  async check(): Promise<void> {
    const blob = { digest: digestOf(Buffer.alloc(0)), size_bytes: 0 };
    await this.#connection.retried(() => this.#has(blob, "the repository"));
  }

  /** Gives a tag a manifest. Returns its digest. */
  async manifest(tag: string, bytes: Buffer, media_type: string): Promise<string> {
    const path = `manifests/${tag}`;
    const sending = { method: "PUT", body: bytes, common_headers: { "content-type": media_type } };
    const answer = await this.#connection.retried(() => this.#ask(path, `manifest ${tag}`, sending));
    if (answer.status !== 201) throw this.#unexpected(answer, `manifest ${tag}`);
    return digestOf(bytes);
  }

  async #has({ digest, size_bytes }: Pick<Blob, "digest" | "size_bytes">, subject: string): Promise<boolean> {
    const answer = await this.#ask(`blobs/${digest}`, subject, { method: "HEAD" }, [404]);
    const { "content-type": type = "", "content-length": length } = answer.headers;
    // A server that is no registry may answer 2xx to any request.
    if (answer.status === 200 && /html/i.test(type))
      throw wrongAnswer(this.#options.host, `HTML instead of ${subject}`);
    return answer.status === 200 && (length === undefined || length === String(size_bytes));
  }

  async #upload(blob: Blob, subject: string, onSent: (bytes: number) => void): Promise<void> {
    const { outgoing, limits, host, signal } = this.#options;
    const begun = await this.#ask("blobs/uploads/", subject, { method: "POST", body: "" });
    if (begun.status !== 202) throw this.#unexpected(begun, subject);
    const { url, is_own } = this.#place(begun);
    const { header } = this.#connection.authorization;
    const answer = await outgoing
      .upload(`${url}${url.includes("?") ? "&" : "?"}digest=${encodeURIComponent(blob.digest)}`, {
        method: "PUT",
        headers: is_own && header !== null ? { authorization: header } : {},
        common_headers: { "content-type": "application/octet-stream", "user-agent": "hearth" },
        pieces: counted(blob.open(), onSent),
        size_bytes: blob.size_bytes,
        timeout_ms: limits.registry_layer_ms,
        silence_ms: limits.registry_silence_ms,
        silence_bytes_min: limits.registry_silence_bytes_min,
        answer_ms: limits.registry_commit_ms,
        bytes_max: limits.registry_upload_answer_bytes_max,
        listed: is_own ? host.listed : [],
        authorities: is_own ? host.authorities : [],
        signal,
      })
      .catch((error) => {
        throw this.#failureOf(error);
      });
    if (answer.status === 201 || answer.status === 204) return;
    // A token may end during a long upload: another attempt gets a new one.
    if (answer.status === 401 && is_own && (await this.#challenged(answer, header, subject))) {
      throw new AppError(
        "REGISTRY_FAILED",
        `registry ${shownHost(host)} ended the access during the upload of ${subject}`,
        {
          retryable: true,
        },
      );
    }
    throw this.#unexpected(answer, subject);
  }

  /** U2. Returns the place of an upload, without a fragment. */
  #place({ headers }: OutgoingAnswer): { readonly url: string; readonly is_own: boolean } {
    const { host, repository } = this.#options;
    const { origin } = this.#connection;
    const url = URL.parse(headers.location ?? "", `${origin}/v2/${repository}/blobs/uploads/`);
    if (headers.location === undefined || url === null || url.username !== "" || url.password !== "") {
      throw wrongAnswer(host, "no usable place for an upload");
    }
    const isWeaker = origin.startsWith("https:") && url.protocol !== "https:";
    if (isWeaker || !/^https?:$/.test(url.protocol)) throw wrongAnswer(host, "place of an upload without TLS");
    url.hash = "";
    return { url: url.href, is_own: url.origin === new URL(origin).origin };
  }

  /** Resolves with an answer that succeeded, or has a status that is `expected`. */
  async #ask(path: string, subject: string, sending: Partial<Sending>, expected: readonly number[] = []) {
    const { host } = this.#options;
    for (let challenges = 0; ; challenges++) {
      const used = this.#connection.authorization.header;
      const answer = await this.#sent(path, sending);
      if ((answer.status >= 200 && answer.status < 300) || expected.includes(answer.status)) return answer;
      if (answer.status !== 401 || challenges >= CHALLENGES_MAX) throw this.#unexpected(answer, subject);
      if (!(await this.#challenged(answer, used, subject))) {
        throw statusFailure(answer, host, subject, this.#connection.authorization.hasCredentials);
      }
    }
  }

  /** Answers a challenge. Resolves to false if the answer has none. */
  async #challenged({ headers }: OutgoingAnswer, used: string | null, subject: string): Promise<boolean> {
    const challenge = headers["www-authenticate"];
    if (challenge === undefined) return false;
    await this.#connection.authorization.answer(challenge, used, subject);
    return true;
  }

  async #sent(path: string, { common_headers, ...sending }: Partial<Sending>): Promise<OutgoingAnswer> {
    const { outgoing, host, repository, limits, signal } = this.#options;
    const { header } = this.#connection.authorization;
    return this.#connection
      .reach((origin) =>
        outgoing.request(`${origin}/v2/${repository}/${path}`, {
          ...sending,
          headers: header === null ? {} : { authorization: header },
          common_headers: { "user-agent": "hearth", ...common_headers },
          timeout_ms: limits.registry_answer_ms,
          bytes_max: limits.registry_upload_answer_bytes_max,
          listed: host.listed,
          authorities: host.authorities,
          signal,
        }),
      )
      .catch((error) => {
        throw this.#failureOf(error);
      });
  }

  #unexpected(answer: OutgoingAnswer, subject: string): AppError {
    const { host } = this.#options;
    if (answer.status < 400) return wrongAnswer(host, `status ${answer.status} for ${subject}`);
    return statusFailure(answer, host, subject, this.#connection.authorization.hasCredentials);
  }

  #failureOf(error: unknown): unknown {
    const { host, signal } = this.#options;
    return signal.aborted ? signal.reason : connectionFailure(error, host);
  }
}

async function* counted(pieces: AsyncIterable<Uint8Array>, onSent: (bytes: number) => void) {
  let bytes = 0;
  for await (const piece of pieces) {
    yield piece;
    bytes += piece.length;
    onSent(bytes);
  }
}
