/** Git repositories as sources of ADD: `https://host/repo.git#ref:directory`, as BuildKit reads them. */
import type { AppError } from "../../../base/errors.ts";
import { LIMITS } from "../../../base/limits.ts";

export interface GitSource {
  /** Of the repository, without what stands behind `#`. */
  readonly repository: string;
  /** Branch, tag, or 40 digits of a commit; null: the default branch. */
  readonly ref: string | null;
  /** Relative to the root of the tree; empty for all of it. */
  readonly directory: string;
}

/** Git over HTTP, and the transports that are not served. */
const HTTP_GIT = /^https?:\/\/[^#?]*\.git(?:[#?].*)?$/i;
const OTHER_GIT = /^(?:git|ssh):\/\/|^git@/i;
/** What git-check-ref-format(1) leaves out. */
const NOT_IN_REFS = /[^!-~\u0080-\u{10ffff}]|[~^:?*[\\]|\.\.|@\{|\/\/|^[/-]|[/.]$/u;
export const COMMIT = /^[0-9a-f]{40}$/;

export const isGit = (source: string): boolean => HTTP_GIT.test(source) || OTHER_GIT.test(source);

/** Reads a source that `isGit`. Throws what `refuse` returns. */
export function gitSource(source: string, refuse: (why: string) => AppError): GitSource {
  const shown = source.slice(0, 200);
  if (OTHER_GIT.test(source))
    throw refuse(`ADD of git needs a URL with https: '${shown}' (ssh and git are not served)`);
  const hash = source.indexOf("#");
  const repository = hash < 0 ? source : source.slice(0, hash);
  const behind = hash < 0 ? "" : source.slice(hash + 1);
  if (!URL.canParse(repository)) throw refuse(`malformed URL: '${shown}'`);
  if (repository.includes("?")) {
    throw refuse(`ADD of git takes no query: '${shown}' (name ref and directory as #ref:directory)`);
  }
  const colon = behind.indexOf(":");
  const named = colon < 0 ? behind : behind.slice(0, colon);
  const ref = COMMIT.test(named.toLowerCase()) ? named.toLowerCase() : named;
  const parts = (colon < 0 ? "" : behind.slice(colon + 1)).split("/").filter((part) => part !== "" && part !== ".");
  if (NOT_IN_REFS.test(ref) || ref.length > LIMITS.build_git_ref_length_max) {
    throw refuse(`malformed ref of git: '${ref.slice(0, 100)}'`);
  }
  const directory = parts.join("/");
  if (parts.includes("..") || directory.includes("\0") || directory.length > LIMITS.path_bytes_max) {
    throw refuse(`malformed directory of a git repository: '${directory.slice(0, 100)}'`);
  }
  return { repository, ref: ref === "" ? null : ref, directory };
}
