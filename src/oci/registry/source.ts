/** Source of the bytes of one image: a registry, or files of this machine. */
import type { FetchedManifest } from "./client.ts";

export interface ImageSource {
  /** Returns a manifest by its tag or digest. Checks its size, not its content. Rejects with NOT_FOUND if there is none. */
  manifest(reference: string, subject: string): Promise<FetchedManifest>;
  /** Returns a blob that fits in memory. Rejects with IMAGE_INVALID unless it has its digest and size. */
  blob(of: { readonly digest: string; readonly size: number }, subject: string): Promise<Buffer>;
  /** Yields the bytes of a blob, exactly `size` of them. Does not check the digest. */
  stream(of: { readonly digest: string; readonly size: number }, subject: string): AsyncGenerator<Buffer>;
}
