/** Series by function: whose they are, and that names never grow without a bound. */
import { describe, expect, it } from "vitest";
import { FunctionSeries } from "../../src/telemetry/function-series.ts";
import { parseExposition } from "../support/exposition.ts";
import { called } from "./called.ts";

/** What a tenant is shown, as `<tenant>/<function>` → successful calls and seconds. */
async function shown(series: FunctionSeries, tenant_id: string | null): Promise<Record<string, number[]>> {
  const families = parseExposition(`${await series.registry(tenant_id).metrics()}`);
  const calls = families.get("hearth_function_invocations_total")?.samples ?? new Map();
  const seconds = families.get("hearth_function_duration_seconds_total")?.samples ?? new Map();
  const found: Record<string, number[]> = {};
  for (const [name, value] of seconds) {
    const [, label = "", tenant = ""] = /function="(.*)",tenant_id="(.*)"/.exec(name) ?? [];
    const success = calls.get(
      `hearth_function_invocations_total{function="${label}",status="success",tenant_id="${tenant}"}`,
    );
    found[`${tenant}/${label}`] = [success, value];
  }
  return found;
}

describe("series by function", () => {
  it("hold at most their bound, and the least recently called goes into other with all that it counted", async () => {
    const series = new FunctionSeries(2);
    series.count("t", called("a"));
    series.count("t", called("b"));
    series.count("t", called("a"));
    series.count("t", called("c"));
    expect(await shown(series, null)).toEqual({ "t/a": [2, 1], "t/c": [1, 0.5], "other/other": [1, 0.5] });
    for (let i = 0; i < 50; i++) series.count("t", called(`f${i}`));
    const all = await shown(series, null);
    expect(Object.keys(all)).toHaveLength(3);
    expect(all["other/other"]).toEqual([52, 26]);
  });

  it("keep functions of one name in two tenants apart, and show each tenant its own alone", async () => {
    const series = new FunctionSeries(2);
    series.count("one", called("same"));
    series.count("two", called("same", { status: "failed" }));
    expect(await shown(series, "one")).toEqual({ "one/same": [1, 0.5] });
    expect(await shown(series, "two")).toEqual({ "two/same": [0, 0.5] });
    series.count("two", called("another"));
    expect(Object.keys(await shown(series, "one"))).toEqual([]);
    expect(Object.keys(await shown(series, null))).toEqual(["two/another", "two/same", "other/other"]);
  });

  it("lose a deleted function altogether", async () => {
    const series = new FunctionSeries(2);
    series.count("t", called("a"));
    series.forget("t", "a");
    expect(await shown(series, null)).toEqual({});
  });
});
