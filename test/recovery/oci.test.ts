/** A daemon that is killed within a pull or a deletion of an image: the next one has all of it or nothing. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { build, MadeImages, pullLocal } from "../support/made-images.ts";

const NAME = `localhost/hearth-test-crash-${process.pid}`;
const SETTINGS = { HEARTH_CELLS: "0" };
const made = new MadeImages(NAME);
const daemon = new Daemon();
beforeAll(() => void made.make("crash"));
afterAll(async () => {
  await daemon.dispose();
  made.remove();
});

const isOwn = (name: string) => name.includes(`/kept:hearth-${daemon.tag}-`);
const keptNames = () => build("images", "--format", "{{.Name}}:{{.Tag}}").split("\n").filter(isOwn);
const images = async () => (await daemon.call("GET", "/api/oci/images")).body.images;
const dies = (request: Promise<unknown>) => expect(request).rejects.toThrow();

describe("a daemon that is killed", () => {
  it("between the store and the row: the next one repeats the pull, which has no credentials, and leaves nothing else", async () => {
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "oci.pull.stored=kill" });
    await dies(pullLocal(daemon, NAME));
    expect(keptNames()).toHaveLength(1);
    await daemon.start(SETTINGS);
    await eventually("the pull is repeated", async () => (await images()).length === 1);
    const { operations } = (await daemon.call("GET", "/api/operations?operation_type=oci.pull")).body;
    await eventually("the operation has ended", async () => {
      return (await daemon.call("GET", `/api/operations/${operations[0].operation_id}`)).body.status === "succeeded";
    });
    expect(keptNames()).toHaveLength(1);
    await daemon.call("DELETE", `/api/oci/images?reference=${NAME}`);
    expect(keptNames()).toEqual([]);
    expect(await daemon.stop()).toBe(0);
  });

  it("there, with its operation cancelled meanwhile: no image is left", async () => {
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "oci.pull.stored=kill" });
    await dies(pullLocal(daemon, NAME));
    expect(keptNames()).toHaveLength(1);
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "oci.pull.stored=throw" });
    await eventually("no image is kept", () => keptNames().length === 0);
    expect(await images()).toEqual([]);
    expect(await daemon.stop()).toBe(0);
  });

  it("behind the row: the image is the tenant's", async () => {
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "oci.pull.committed=kill" });
    await dies(pullLocal(daemon, NAME));
    await daemon.start(SETTINGS);
    expect(await images()).toHaveLength(1);
    const { status } = await daemon.call("POST", "/api/containers", { name: "box", image: NAME, oci: true });
    expect(status).toBe(201);
    expect((await daemon.call("DELETE", "/api/containers/box")).status).toBe(200);
    expect(await daemon.stop()).toBe(0);
  });

  it("within a deletion: the row is gone, and the next start frees the image", async () => {
    await daemon.start({ ...SETTINGS, HEARTH_FAILPOINT: "oci.delete.stored=kill" });
    await dies(daemon.call("DELETE", `/api/oci/images?reference=${NAME}`));
    expect(keptNames()).toHaveLength(1);
    await daemon.start(SETTINGS);
    expect(await images()).toEqual([]);
    await eventually("no image is kept", () => keptNames().length === 0);
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
