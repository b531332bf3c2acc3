/** Texts for tenants and the paths of this machine in them. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { AppError, publicText } from "../../src/base/errors.ts";
import { HOST_PATH, hideDirectories, withoutHostPaths } from "../../src/base/host-paths.ts";
import { errorBody } from "../../src/http/errors.ts";

beforeAll(() => hideDirectories(["/var/lib/h", "/var/lib/h/images", "/run/hearth/ab12", "relative", "/"]));
afterAll(() => hideDirectories([]));

describe("a text for tenants", () => {
  it.each([
    ["no files at /var/lib/h/pool/vol_1", `no files at ${HOST_PATH}`],
    [
      "crun: mount `/var/lib/h/pool/v` to `etc/passwd`: Not a directory",
      `crun: mount \`${HOST_PATH}\` to \`etc/passwd\`: Not a directory`,
    ],
    ["open '/run/hearth/ab12/files-1.sock': ENOENT", `open '${HOST_PATH}': ENOENT`],
    ["a:/var/lib/h/images/overlay/x/merged, b", `a:${HOST_PATH}, b`],
    ["lstat /var/lib/h: no such file", `lstat ${HOST_PATH}: no such file`],
    ["stat /proc/4711/root/etc/x and /proc/4711/ns/net", `stat ${HOST_PATH} and ${HOST_PATH}`],
    ["write /sys/fs/cgroup/memory/hearth-1/t/memory.max: EBUSY", `write ${HOST_PATH}: EBUSY`],
    ["setns /run/netns/h12: EPERM", `setns ${HOST_PATH}: EPERM`],
    // What is the tenant's own stays.
    ["/data/var/lib/h/x is not a file", "/data/var/lib/h/x is not a file"],
    ["/var/lib/hearthstone, /var/lib/h-2 and /run/hearths", "/var/lib/hearthstone, /var/lib/h-2 and /run/hearths"],
    // A container has its socket there.
    ["/run/hearth/icc.sock: ENOENT", "/run/hearth/icc.sock: ENOENT"],
    ["/proc/1/root/x, /proc/self/exe, /etc/passwd", "/proc/1/root/x, /proc/self/exe, /etc/passwd"],
    ["relative/x and /", "relative/x and /"],
  ])("%s", (text, expected) => {
    expect(withoutHostPaths(text)).toBe(expected);
    const error = new AppError("START_FAILED", text, { hint: text });
    expect([error.message, error.hint, publicText(error)]).toEqual([expected, expected, expected]);
    expect(errorBody(error, "req_1")).toMatchObject({ error: expected, hint: expected, reason_message: expected });
  });

  it("leaves the whole to the log: as the cause of a refusal, and in a fault, which tells tenants nothing", () => {
    const text = "no files at /var/lib/h/pool";
    expect(new AppError("NOT_FOUND", text).cause).toMatchObject({ message: text });
    const cause = new Error("first");
    expect(new AppError("NOT_FOUND", text, { cause }).cause).toBe(cause);
    const fault = new AppError("INTERNAL", text);
    expect([fault.message, publicText(fault)]).toEqual([text, "internal error"]);
  });

  it("takes a time that grows with its length alone", () => {
    const long = `/var/lib/h${"/a".repeat(200_000)}`;
    expect(withoutHostPaths(`${long} ${"/proc/99/".repeat(50_000)}`)).toContain(HOST_PATH);
  });
});
