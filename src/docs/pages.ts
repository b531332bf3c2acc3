/** The pages of the documentation, in the order of the navigation: each has a guide, operations of the API, or both. */

export interface DocsPageRow {
  readonly id: string;
  readonly title: string;
  /** The guide's file, relative to this folder. */
  readonly guide?: string;
  /** Patterns of `METHOD path`; an operation is on the last page with a pattern that matches. */
  readonly operations?: readonly RegExp[];
  /** A part that is generated from a table. */
  readonly part?: "overview" | "errors" | "headers" | "settings" | "limits" | "schemas";
}

export interface DocsGroup {
  readonly title: string;
  readonly pages: readonly DocsPageRow[];
}

const guide = (id: string, title: string, ...operations: readonly RegExp[]): DocsPageRow => ({
  id,
  title,
  guide: `guides/${id}.md`,
  operations,
});

export const DOCS_GROUPS: readonly DocsGroup[] = [
  {
    title: "Start",
    pages: [
      {
        id: "overview",
        title: "Overview",
        part: "overview",
        operations: [/ \/$/, / \/page\//, / \/api\/(docs|openapi|schemas)/],
      },
      guide("command-line", "Command line"),
      guide("habits", "From Lambda, Docker and sandboxes"),
      guide("console", "Console"),
    ],
  },
  {
    title: "Functions",
    pages: [
      guide("functions", "Functions", / \/api\/functions/),
      guide("folders", "Folders with hearth.toml"),
      guide("code", "Code", / \/api\/functions\/.*(code|deployments)$/),
      guide(
        "versions",
        "Versions and rollback",
        /^PUT \/api\/functions\/[^/]+$/,
        /\/versions(?!.*\/code$)/,
        /\/rollback/,
      ),
      guide("invocations", "Invocations", /\/invoke/, /\/invocations/),
      guide("secrets", "Secrets", / \/api\/secrets\b/),
    ],
  },
  {
    title: "Containers",
    pages: [
      guide("containers", "Containers", / \/api\/containers/),
      guide("exec", "Exec, processes and logs", /containers\/.*\/(exec|attach|stream|jobs|processes|logs|metrics)\b/),
      guide("terminals", "Terminals", / \/(api|ws)\/terminal/),
      guide("desktop", "Desktops", / \/gui\//, /\/(gui-url|gui\/\w+)$/),
      guide("volumes", "Volumes", / \/api\/volumes/),
      guide(
        "snapshots",
        "Snapshots, clones and forks",
        / \/api\/snapshots/,
        /\/(snapshot|snapshot-schedule|fork|restore|changes|commit)$/,
      ),
      guide("files", "Files and archives", /\/(archive|files|ls)\b/),
      guide("networks", "Networks, names and ports", / \/api\/(networks|dns)\b/),
      guide("services", "Published services", / \/api\/services/, /\/:container_id\/services$/),
      guide("messages", "Messages", / \/api\/icc\b/, /\/api\/containers\/:container_id\/(icc|inbox|messages)\b/),
      guide(
        "diagnostics",
        "Diagnostics",
        / \/api\/(network|monitors|cleanup|activity)\b/,
        /containers\/.*\/(network|egress|routes|cleanup)\b/,
      ),
      guide("gpus", "GPUs"),
      guide("images", "Images", / \/api\/(oci|build-contexts)/),
      guide("profiles", "Profiles", / \/api\/nightly/),
    ],
  },
  {
    title: "Conventions",
    pages: [
      guide("requests", "Requests and credentials"),
      guide("errors", "Errors and idempotency"),
      guide("operations", "Operations", / \/api\/operations/),
      guide("events", "Events", / \/api\/events/),
      guide("tenants", "Tenants, keys and limits", / \/api\/(tenants?|api-keys|auth|operator|audit)\b/, /\/api-keys\b/),
      guide("users", "Users and sign-in", / \/api\/users\b/, / \/api\/auth\/(?!token)/),
    ],
  },
  {
    title: "Operating",
    pages: [
      guide("operating", "Operating a node", / \/api\/system/, / \/health$/),
      guide("recovery", "Shutdown and recovery"),
      { id: "metrics", title: "Metrics, log and traces", guide: "../telemetry/README.md", operations: [/ \/metrics$/] },
      { id: "settings", title: "Settings", part: "settings" },
      { id: "limits", title: "Limits", part: "limits" },
    ],
  },
  {
    title: "Reference",
    pages: [
      { id: "error-codes", title: "Error codes", part: "errors" },
      { id: "headers", title: "Headers", part: "headers" },
      { id: "schemas", title: "Schemas", part: "schemas" },
    ],
  },
];

export const DOCS_PAGES: readonly DocsPageRow[] = DOCS_GROUPS.flatMap(({ pages }) => pages);

/** The section's id of a page: operations have ids of their own, such as `health`. */
export const pageId = (id: string): string => `page-${id}`;

/** Returns the page of an operation; undefined: no page has it. */
export function pageOf(method: string, path: string): DocsPageRow | undefined {
  return DOCS_PAGES.findLast(({ operations = [] }) => operations.some((pattern) => pattern.test(`${method} ${path}`)));
}
