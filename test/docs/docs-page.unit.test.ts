/** The page of the API: everything is in it, nothing leads nowhere, and nothing of the document can become markup. */
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ERRORS } from "../../src/base/errors.ts";
import { docsPage } from "../../src/docs/docs-page.ts";
import { openApiDocument } from "../../src/docs/openapi.ts";
import { DOCS_PAGES, pageOf } from "../../src/docs/pages.ts";
import { route } from "../../src/http/route.ts";
import { ROUTES } from "../support/routes.ts";

const page = async () => {
  const response = ROUTES.find(({ operation }) => operation === "docs")?.handler({} as never) as Response;
  return { html: await response.text(), headers: response.headers };
};

describe("GET /api/docs", () => {
  it("shows every operation with its path, and every code with its meaning", async () => {
    const { html } = await page();
    for (const { operation } of ROUTES) expect(html).toContain(`<article id="${operation}" data-kind="operation"`);
    for (const code of Object.keys(ERRORS)) expect(html).toContain(`id="error-${code}"`);
    expect(html).toContain("curl -X PUT &#34;$HEARTH_URL/api/functions/fn_");
    // A header without which the request is refused.
    const article = /<article id="listSnapshots"[\s\S]*?<\/article>/.exec(html)?.[0] ?? "";
    expect(article).toContain("-H &#34;X-Tenant-Id: default&#34;");
  });

  it("leads somewhere with every link, and has every id once", async () => {
    const { html } = await page();
    const ids = [...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id);
    const links = [...html.matchAll(/ href="([^"]+)"/g)].map(([, href]) => href ?? "");
    expect(new Set(ids).size).toBe(ids.length);
    expect(links.filter((href) => href.startsWith("#") && !ids.includes(href.slice(1)))).toEqual([]);
    expect([...new Set(links.filter((href) => !href.startsWith("#")))]).toEqual(["/api/openapi.json"]);
  });

  it("lets the browser load and run nothing but its own style and script", async () => {
    const { html, headers } = await page();
    const [style = "", script = ""] = ["style", "script"].map(
      (tag) => new RegExp(`<${tag}>([\\s\\S]*)</${tag}>`).exec(html)?.[1] ?? "",
    );
    const hashOf = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
    expect(style).toContain("body");
    expect(script).toContain("addEventListener");
    expect(headers.get("content-security-policy")).toContain(
      `default-src 'none'; style-src ${hashOf(style)}; script-src ${hashOf(script)}; require-trusted-types-for 'script'`,
    );
    expect(headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(html.replace(`<script>${script}</script>`, "")).not.toMatch(
      /<script|<link|<img|<iframe|\sstyle=|\son\w+=|url\(|@import/i,
    );
  });

  it("has a page for every guide, and every operation on the page of its concern", async () => {
    const guides = readdirSync(new URL("../../src/docs/guides", import.meta.url)).map((file) => `guides/${file}`);
    expect(guides.filter((file) => DOCS_PAGES.every(({ guide }) => guide !== file))).toEqual([]);
    expect(ROUTES.filter(({ method, path }) => pageOf(method, path) === undefined)).toEqual([]);
    const pages = ["GET /api/functions/:function_id/versions", "POST /api/volumes/:name/archive", "GET /metrics"];
    const ids = pages.map((name) => pageOf(...(name.split(" ") as [string, string]))?.id);
    expect(ids).toEqual(["versions", "files", "metrics"]);
  });

  it("shows as text whatever a route says of itself", () => {
    const evil = `<img src=x onerror="alert('1')">&`;
    const document = openApiDocument(
      [
        route({
          method: "POST",
          path: "/api/evil",
          auth: "public",
          operation: "evil",
          summary: evil,
          example: { body: { evil }, response: { evil } },
          handler: () => ({}),
        }),
      ],
      { title: evil, version: evil, description: `\`${evil}\``, tags: { evil } },
    );
    const { html } = docsPage(document);
    expect(html).toContain("&#60;img src=x onerror=&#34;alert(&#39;1&#39;)&#34;&#62;&#38;");
    expect(html).not.toMatch(/<img|onerror="/);
  });
});
