/** The configuration of an image, in which whoever built it may write anything. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { detailsOf, historyOf } from "../../src/oci/image-config.ts";

const config = (fields: object = {}, more: object = {}) =>
  JSON.stringify({ architecture: "amd64", os: "linux", config: fields, ...more });
const layer = (uncompressed_size: number | null) => ({
  digest: "sha256:x",
  size_bytes: 7,
  uncompressed_size,
  media_type: "application/x",
});
const refused = (message: unknown) => expect.objectContaining({ code: "IMAGE_INVALID", message });

describe("the configuration of an image", () => {
  it("gives empty fields where it has none, or null", () => {
    const none = { entrypoint: null, default_cmd: null, env: [], working_dir: null, user_spec: null };
    expect(detailsOf(JSON.stringify({ architecture: "amd64", os: "linux" }))).toMatchObject(none);
    const nulls = { Entrypoint: null, Cmd: [], Env: null, WorkingDir: "", User: "", Labels: null, Volumes: null };
    expect(detailsOf(config(nulls, { created: null }))).toMatchObject({ ...none, labels: {}, created_at: null });
  });

  it("is refused with the field that is wrong", () => {
    for (const [fields, field] of [
      [{ Env: "A=1" }, "config.Env"],
      [{ Cmd: [1] }, "config.Cmd.0"],
      [{ Labels: { a: {} } }, "config.Labels.a"],
      [{ User: 5 }, "config.User"],
    ] as const) {
      expect(() => detailsOf(config(fields))).toThrow(refused(expect.stringContaining(field)));
    }
    expect(() => detailsOf("{")).toThrow(refused("invalid configuration of the image: not JSON"));
    expect(() => detailsOf("{}")).toThrow(refused(expect.stringContaining("architecture")));
    expect(() => detailsOf("null")).toThrow(refused(expect.anything()));
  });

  it("is refused if its environment is larger than a record may be", () => {
    const max = LIMITS.image_details_bytes_max;
    expect(() => detailsOf(config({ Env: [`A=${"x".repeat(10 * 1024 * 1024)}`] }))).toThrow(
      refused(expect.stringMatching(new RegExp(`^configuration of the image too large: .* \\(limit ${max}\\)$`))),
    );
    expect(detailsOf(config({ Env: [`A=${"x".repeat(max / 2)}`] })).env).toHaveLength(1);
  });

  it("cannot set members of objects that it does not have", () => {
    const text = '{"architecture":"amd64","os":"linux","config":{"Labels":{"__proto__":"x","a":"b"}}}';
    const { labels } = detailsOf(text);
    expect(Object.getPrototypeOf(labels)).toBe(Object.prototype);
    expect(labels.a).toBe("b");
  });
});

describe("the history of an image", () => {
  it("is made of its layers where the builder wrote none", () => {
    expect(historyOf(config(), [layer(10), layer(null)]).map(({ size_bytes }) => size_bytes)).toEqual([10, 7]);
  });

  it("has sizes for the steps that made layers, also if it names more of them than exist", () => {
    const history = [{ created_by: "a" }, { empty_layer: true }, { created_by: "b" }, { created_by: "c" }];
    const steps = historyOf(config({}, { history }), [layer(10), layer(20)]);
    expect(steps.map(({ created_by, size_bytes }) => [created_by, size_bytes])).toEqual([
      ["a", 10],
      ["", 0],
      ["b", 20],
      ["c", 0],
    ]);
  });
});
