/**
 * The page at `/`: its files, read once when the routes are made, and the headers that keep it to itself. What the page
 * does is in assets/, in plain browser JavaScript that is served as it stands; it knows the daemon by the API alone. Of
 * others it has xterm.js and noVNC, from their packages.
 *
 * P1. Every answer has the policy below: nothing from another host, nothing inline, no text made into markup, no frame.
 * P2. A file is known by the hash of its bytes, and asked about on every load: a new daemon is never shown by an old page.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, extname, join } from "node:path";
import { z } from "zod";
import { AppError } from "../base/errors.ts";
import { type Route, route } from "../http/route.ts";

const ASSETS = new URL("./assets/", import.meta.url);

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

const HEADERS = {
  "cache-control": "no-cache",
  "content-security-policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; "),
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
} as const;

interface Asset {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly etag: string;
  readonly content_type: string;
}

/** What the page shows terminals with, from its packages. */
const PACKAGED: Readonly<Record<string, string>> = {
  "xterm-core.js": "@xterm/xterm/lib/xterm.mjs",
  "xterm-fit.js": "@xterm/addon-fit/lib/addon-fit.mjs",
  "xterm.css": "@xterm/xterm/css/xterm.css",
};

/** Folders of the package @novnc/novnc with the modules of the viewer; they import each other by their paths. */
const NOVNC = ["core", "vendor"];

/** The viewer's pictures arrive in messages, and become data URLs; only images can. */
const VIEWER_HEADERS = {
  ...HEADERS,
  "cache-control": "no-store",
  "content-security-policy": HEADERS["content-security-policy"].replace("img-src 'self'", "img-src 'self' data:"),
};

/** The page's own folder, and what it takes from packages; a file of a kind that is not served is none of the page's. */
function readAssets(): ReadonlyMap<string, Asset> {
  const assets = new Map<string, Asset>();
  const { resolve } = createRequire(import.meta.url);
  const own = readdirSync(ASSETS).map((name) => [name, new URL(name, ASSETS)] as const);
  const packaged = Object.entries(PACKAGED).map(([name, path]) => [name, resolve(path)] as const);
  const novnc = dirname(dirname(resolve("@novnc/novnc")));
  const modules = NOVNC.flatMap((folder) =>
    readdirSync(join(novnc, folder), { recursive: true, encoding: "utf8" }).map(
      (name) => [`novnc/${folder}/${name}`, join(novnc, folder, name)] as const,
    ),
  );
  for (const [name, path] of [...own, ...packaged, ...modules]) {
    const content_type = CONTENT_TYPES[extname(name)];
    if (content_type === undefined) continue;
    const bytes = new Uint8Array(readFileSync(path));
    const etag = `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 22)}"`;
    assets.set(name, { bytes, etag, content_type });
  }
  return assets;
}

/** Whether one of the tags that the client has is the asset's; a weak one counts, as RFC 9110 §13.1.2 wants. */
function isKnown(if_none_match: string | null, etag: string): boolean {
  if (if_none_match === null) return false;
  return if_none_match.split(",").some((tag) => tag.trim() === "*" || tag.trim().replace(/^W\//, "") === etag);
}

/** The files of the page, read once. */
export class PageFiles {
  readonly #assets = readAssets();

  /** Throws NOT_FOUND. */
  answer(name: string, request: { header(name: string): string | null }): Response {
    const asset = this.#assets.get(name);
    if (asset === undefined) throw new AppError("NOT_FOUND", `no such file of the page: '${name}'`);
    const headers = { ...HEADERS, etag: asset.etag };
    if (isKnown(request.header("if-none-match"), asset.etag)) return new Response(null, { status: 304, headers });
    return new Response(asset.bytes, { headers: { ...headers, "content-type": asset.content_type } });
  }

  /** The page that shows a desktop, under the address that has its token. */
  viewer(): Response {
    const asset = this.#assets.get("desktop.html");
    return new Response(asset?.bytes ?? null, {
      headers: { ...VIEWER_HEADERS, "content-type": "text/html; charset=utf-8" },
    });
  }
}

export function pageRoutes(files = new PageFiles()): Route[] {
  return [
    route({
      method: "GET",
      path: "/",
      auth: "public",
      operation: "page",
      content: ["text/html"],
      summary: "Returns the console, the web page of a tenant.",
      handler: (request) => files.answer("index.html", request),
    }),
    route({
      method: "GET",
      path: "/page/:file",
      auth: "public",
      operation: "pageFile",
      content: ["text/javascript", "text/css", "image/svg+xml"],
      summary: "Returns a script, style or image of the web page.",
      params: z.object({ file: z.string() }),
      handler: (request) => files.answer(request.params.file, request),
    }),
    route({
      method: "GET",
      path: "/page/novnc/*",
      auth: "public",
      operation: "viewerFile",
      content: ["text/javascript"],
      summary: "Returns a script of noVNC, which shows desktops.",
      params: z.object({ path: z.string() }),
      handler: (request) => files.answer(`novnc/${request.params.path}`, request),
    }),
  ];
}
