/** Settings and limits: documented as they are read, everywhere. */
import { describe, expect, it } from "vitest";
import { readConfig } from "../../src/base/config.ts";
import { limitGroups, limitsText, tenantLimitRows } from "../../src/base/limit-texts.ts";
import { LIMITS } from "../../src/base/limits.ts";
import {
  rangeOf,
  SETTINGS,
  type Setting,
  type SettingName,
  settingRows,
  settingsText,
} from "../../src/base/settings.ts";
import { TENANT_LIMITS } from "../../src/base/tenant-limits.ts";
import { DOCUMENTS } from "../support/markdown-documents.ts";
import { ROUTES } from "../support/routes.ts";

const NAMES = Object.keys(SETTINGS) as SettingName[];
const VARIABLES = NAMES.map((name) => SETTINGS[name].variable);

/** Variables of the command line, of handlers and of tests, which are no settings of the daemon. */
const OTHERS = new Set([
  "HEARTH_URL",
  "HEARTH_KEY",
  "HEARTH_PROFILE",
  "HEARTH_PAYLOAD",
  "HEARTH_INVOCATION_ID",
  "HEARTH_FUNCTION_NAME",
  "HEARTH_FUNCTION_VERSION",
  "HEARTH_DEADLINE_MS",
  "HEARTH_FAILPOINT",
]);

const page = async (): Promise<string> => {
  const response = ROUTES.find(({ operation }) => operation === "docs")?.handler({} as never) as Response;
  return response.text();
};

describe("the settings", () => {
  it("are all read, and nothing else is read", () => {
    const asked = new Set<string>();
    const issuer = { HEARTH_JWT_ISSUER: "i", HEARTH_JWT_AUDIENCE: "a", HEARTH_JWKS_URL: "http://127.0.0.1/keys" };
    const environment = new Proxy<Record<string, string>>(issuer, {
      get: (target, name) => {
        asked.add(String(name));
        return target[String(name)];
      },
    });
    readConfig(environment, []);
    expect([...asked].filter((name) => name.startsWith("HEARTH_")).sort()).toEqual([...VARIABLES].sort());
  });

  it("have each a variable, a range, a default in it, and one sentence", () => {
    for (const name of NAMES) {
      const { variable, fallback, default_text, range, about }: Setting = SETTINGS[name];
      expect(variable).toMatch(/^HEARTH_[A-Z_]+$/);
      expect(about).toMatch(/^[A-Z].*\.$/);
      expect(about.slice(0, -1)).not.toMatch(/\.\s/);
      expect([name, fallback === "" ? default_text : fallback]).not.toEqual([name, undefined]);
      if (typeof range === "string" || fallback === "") continue;
      expect(Number(fallback)).toBeGreaterThanOrEqual(range[0]);
      expect(Number(fallback)).toBeLessThanOrEqual(range[1]);
    }
  });

  it.each(NAMES.filter((name) => typeof (SETTINGS[name] as Setting).range !== "string"))(
    "refuse %s beside its range with the range",
    (name) => {
      const { variable, range } = SETTINGS[name] as Setting;
      const [min, max] = range as readonly [number, number];
      for (const value of [min - 1, max + 1, "x"]) {
        expect(() => readConfig({ [variable]: String(value) }, [])).toThrow(rangeOf(name));
      }
      for (const value of [min, max]) expect(() => readConfig({ [variable]: String(value) }, [])).not.toThrow();
    },
  );

  it("are in hearth help settings and on the page of the API, each with default and range", async () => {
    const [text, html] = [settingsText(), await page()];
    expect(settingRows()).toHaveLength(NAMES.length);
    for (const { variable, flag, default_text, range, about } of settingRows()) {
      expect(text).toContain(`${variable}${flag === "" ? "" : `  ${flag}`}\n  ${about}\n  default: ${default_text}\n`);
      expect(text).toContain(`values: ${range}\n`);
      expect(html).toContain(`<code>${variable}</code>`);
    }
  });

  it("are the only variables of the daemon that documents name", () => {
    const known = new Set([...VARIABLES, ...OTHERS]);
    const unknown = DOCUMENTS.flatMap(({ path, text }) =>
      [...text.matchAll(/\bHEARTH_[A-Z_]*[A-Z]\b/g)]
        .map(([name]) => name)
        .filter((name) => !known.has(name))
        .map((name) => `${path}: ${name}`),
    );
    expect(unknown).toEqual([]);
  });
});

describe("the limits", () => {
  it("are documented once each, with the value in force", () => {
    const rows = limitGroups().flatMap((group) => group.rows);
    expect(new Set(rows.map(({ name }) => name)).size).toBe(rows.length);
    for (const { name, value, about } of rows) {
      expect(value).toBe(LIMITS[name]);
      expect(about).toMatch(/^[A-Z].*\.$/);
    }
    const shown = Object.fromEntries(rows.map(({ name, shown }) => [name, shown]));
    expect(shown).toMatchObject({
      body_bytes_max: "8 MiB",
      argument_bytes_max: "131,071 bytes",
      headers_timeout_ms: "15 s",
      idempotency_kept_seconds: "24 h",
      memory_limit_mb_max: "16 GiB",
      list_limit_max: "1,000",
      host_port_first: "20000",
    });
  });

  it("are in hearth help limits and on the page of the API, with those of a tenant", async () => {
    const [text, html] = [limitsText(), await page()];
    for (const { name, shown } of limitGroups().flatMap((group) => group.rows)) {
      expect(text).toMatch(new RegExp(`^ {2}${name} +${shown.replace(/[%.]/g, "\\$&")} `, "m"));
      expect(html).toContain(`<code>${name}</code>`);
    }
    expect(tenantLimitRows().map(({ name }) => name)).toEqual(Object.keys(TENANT_LIMITS));
    for (const { name, default_text } of tenantLimitRows()) {
      expect(text).toContain(`  ${name}\n`);
      expect(text).toContain(`default: ${default_text}; above it: `);
      expect(html).toContain(`<code>${name}</code>`);
    }
  });
});
