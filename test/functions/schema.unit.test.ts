/** Names and bounds of functions. */
import { describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { createContainer } from "../../src/containers/schema.ts";
import { createFunction } from "../../src/functions/schema.ts";

describe("the name of a function", () => {
  it("follows the rule of a container's name", () => {
    const names = ["a", "x".repeat(128), "it's é 日本", "-rf", "a b", "a:b", "$(id)"];
    const refused = ["", " a", "a ", ".", "..", "a/b", "a\0", "a\nb", "\ud800", "x".repeat(129)];
    const isTaken = (name: string) =>
      [createFunction.safeParse({ name, handler: "true" }), createContainer.safeParse({ name })].map(
        ({ success }) => success,
      );
    for (const name of names) expect([name, ...isTaken(name)]).toEqual([name, true, true]);
    for (const name of refused) expect([name, ...isTaken(name)]).toEqual([name, false, false]);
  });
});

describe("the bounds of a function", () => {
  const complaints = (fields: object): string[] =>
    createFunction
      .safeParse({ name: "f", handler: "true", ...fields })
      .error?.issues.map(({ path, message }) => `${path.join(".")}: ${message}`) ?? [];

  it("are bytes where the kernel counts bytes", () => {
    const { handler_bytes_max, path_bytes_max } = LIMITS;
    expect(complaints({ handler: "é".repeat(handler_bytes_max / 2) })).toEqual([]);
    expect(complaints({ handler: "é".repeat(handler_bytes_max / 2 + 1) })).toEqual([
      `handler: must not be larger than ${handler_bytes_max} bytes`,
    ]);
    expect(complaints({ working_directory: `/${"x".repeat(path_bytes_max - 1)}` })).toEqual([]);
    expect(complaints({ working_directory: `/${"é".repeat(path_bytes_max / 2)}` })).toEqual([]);
    expect(complaints({ working_directory: `/x${"é".repeat(path_bytes_max / 2)}` })).toEqual([
      `working_directory: must not be larger than ${path_bytes_max} bytes`,
    ]);
  });
});

describe("a handler in the form of another service", () => {
  const hint = (runtime: string, handler: string): unknown => {
    const issue = createFunction.safeParse({ name: "f", runtime, handler }).error?.issues[0];
    return issue?.code === "custom" ? issue.params?.hint : undefined;
  };

  it("is shown in the form of this one, and nothing else is", () => {
    const nodejs = (handler: string) => hint("nodejs", handler);
    const python3 = (handler: string) => hint("python3", handler);
    expect(nodejs("src/index.handler")).toContain("'src/index.mjs#handler'");
    expect(nodejs("index.ts:handler")).toContain("'index.ts#handler'");
    expect(python3("pkg.app.handler")).toContain("'pkg/app.py:handler'");
    expect(python3("app:main")).toContain("'app.py:main'");
    expect(python3("app.py#main")).toContain("'app.py:main'");
    for (const handler of ["a.py", "app.py:main", "node index.js", "index", "#handler", "../x.handler "]) {
      expect([handler, nodejs(handler)]).toEqual([handler, undefined]);
    }
    for (const handler of ["main", "index.js:handler", "index.ts", "python app.py"]) {
      expect([handler, python3(handler)]).toEqual([handler, undefined]);
    }
  });
});
