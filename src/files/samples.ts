/** Answers of a daemon to the examples of the routes, as the description of the API shows them. */
import type { FileList } from "./schema.ts";

export function listSample(name: string, mode: number): FileList {
  const directory = { name, path: `/${name}`, type: "directory" as const, size: 10, mode, target: null };
  return {
    path: "/",
    files: [{ ...directory, modified_at: 1795262400, uid: 0, gid: 0 }],
    page: 1,
    page_size: 100,
    total: 1,
    total_pages: 1,
    has_more: false,
  };
}

/** An archive of one file, a.txt, and the directory that it is unpacked in. */
export const archiveSample = (directory: string) => ({
  content:
    "H4sIAJ+OAWsC/+3NMQqEQBAEwIl9xb1ARETfYyBcIAjnCj7f1UjMTxCrkh66g+nLtKb4ryprm+bI7Jr7err3vu3qOj5V3GCZU//LL+OdvsM4TkUAAAAAAAAAAADwMBsmWm5AACgAAA==",
  path: `/${directory}`,
});

export const UNPACKED = { success: true as const, message: "1 entry" };
