/** Images that are replaced in the store under a name that containers are made from. */
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { LIMITS } from "../../src/base/limits.ts";
import { profileImage } from "../../src/installation/profiles.js";
import { Connection } from "../../src/store/connection.ts";
import { ContainerUser } from "../support/containers.ts";
import { Daemon, eventually, NOTHING_LEFT } from "../support/daemon.ts";
import { build, MadeImages, mountsOf, pullLocal } from "../support/made-images.ts";

const NAME = `localhost/hearth-test-retag-${process.pid}`;
const images = new MadeImages(NAME);
const daemon = new Daemon();
const user = new ContainerUser(daemon);
beforeEach(() => daemon.start({ HEARTH_CELLS: "0" }));
afterAll(async () => {
  await daemon.dispose();
  images.remove();
});

/** Of what the name stands for now. */
const create = async (name: string) => {
  await pullLocal(daemon, NAME);
  return user.create({ name, image: NAME, oci: true });
};
/** Names by which daemons keep the image. */
const keptOf = (id: string) => {
  const names = build("images", "--format", "{{.Name}}:{{.Tag}}").split("\n");
  return names.filter((name) => name.includes("/kept:") && name.trim().endsWith(id.slice(0, 32)));
};
const mountedOf = (id: string) => mountsOf(daemon.leftovers(), id);

describe("a name that comes to stand for another image", () => {
  it("is the new image to the next container, the old one to containers made before, until none needs that", async () => {
    const first_id = images.make("first");
    const { container_id: old } = await create("old");
    expect(await user.shell(old, "cat /version")).toBe("first\n");
    const second_id = images.make("second");
    const { container_id: next } = await create("next");
    expect(await user.shell(next, "cat /version")).toBe("second\n");

    await daemon.call("POST", `/api/containers/${old}/stop`, { timeout_ms: 0 });
    await daemon.call("POST", `/api/containers/${old}/start?execution=sync`);
    expect(await user.shell(old, "cat /version")).toBe("first\n");

    // Another daemon keeps what the containers need that live on.
    await daemon.stop("SIGKILL");
    await daemon.start({ HEARTH_CELLS: "0" });
    expect([keptOf(first_id).length, keptOf(second_id).length]).toEqual([1, 1]);
    expect(await user.shell(old, "cat /version; ls / | wc -l")).toMatch(/^first\n1\d\n$|^first\n2\d\n$/);
    await user.delete(old);
    expect(await user.shell(next, "cat /version")).toBe("second\n");
    await user.delete(next);
    expect(await daemon.stop("SIGTERM")).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});

describe("a container whose image has lost its name", () => {
  it("is valid while the store has the image", async () => {
    images.make("kept");
    const { container_id: id } = await create("unnamed");
    build("tag", images.make("moved"), `${NAME}-other`);
    build("rmi", NAME);
    expect((await daemon.call("GET", `/api/containers/${id}`)).body).toMatchObject({
      exec_ready: true,
      checks: { managed_image_valid: true },
    });
    await user.delete(id);
    expect(await daemon.stop()).toBe(0);
  });

  it("keeps what the name stood for at the upgrade, if an earlier version noted the name alone", async () => {
    images.make("upgraded");
    const { container_id: id } = await create("upgraded");
    await daemon.call("POST", `/api/containers/${id}/stop`, { timeout_ms: 0 });
    expect(await daemon.stop()).toBe(0);
    const connection = new Connection(`${daemon.data_dir}/hearth.db`, LIMITS);
    connection.run("UPDATE containers SET make = json_remove(make, '$.image_id') WHERE id = ?", [id]);
    connection.close();
    await daemon.start({ HEARTH_CELLS: "0" });
    images.make("later");
    await daemon.call("POST", `/api/containers/${id}/start?execution=sync`);
    expect(await user.shell(id, "cat /version")).toBe("upgraded\n");
    await user.delete(id);
    expect(await daemon.stop()).toBe(0);
  });
});

describe("a version whose profile came to stand for another image", () => {
  /** While the daemon is down. */
  const imageOf = (name: string, image?: string) => {
    const connection = new Connection(`${daemon.data_dir}/hearth.db`, LIMITS);
    const of = "function_seq = (SELECT seq FROM functions WHERE name = ?) AND version = 1";
    if (image !== undefined) connection.run(`UPDATE function_versions SET image = ? WHERE ${of}`, [image, name]);
    const row = connection.rows(`SELECT image FROM function_versions WHERE ${of}`, [name])[0];
    connection.close();
    return row?.image;
  };
  const versionOf = async () => (await daemon.invoke("keeper", {})).stdout.trim();

  it("keeps the image it was made with, until the store of images has lost it", async () => {
    const earlier_id = images.make("earlier");
    const handler = "cat /version 2>/dev/null || echo present";
    const { id } = await daemon.deploy({ name: "keeper", handler });
    expect(await versionOf()).toBe("present");
    expect(await daemon.stop()).toBe(0);
    const present_id = imageOf("keeper");
    expect(present_id).toBe(
      build("inspect", "--type", "image", "--format", "{{.FromImageID}}", profileImage("prod").reference),
    );

    imageOf("keeper", earlier_id);
    await daemon.start({ HEARTH_CELLS: "0" });
    expect(await versionOf()).toBe("earlier");
    expect(mountedOf(earlier_id)).toHaveLength(1);
    await eventually("the daemon keeps the image", () => keptOf(earlier_id).length === 1);

    // The next version gets the present image; the one before keeps its own.
    await daemon.call("PUT", `/api/functions/${id}`, { handler, description: "next" });
    expect(await versionOf()).toBe("present");
    await daemon.call("POST", `/api/functions/${id}/rollback`, { version: 1 });
    expect(await versionOf()).toBe("earlier");
    expect(await daemon.stop()).toBe(0);
    expect(mountedOf(earlier_id)).toHaveLength(0);
    // Set-up removes old releases the same way.
    expect(() => build("rmi", earlier_id)).toThrow();

    imageOf("keeper", "0".repeat(64));
    await daemon.start({ HEARTH_CELLS: "0" });
    expect(await versionOf()).toBe("present");
    expect(daemon.output).toContain("theirs is not in the store");
    await eventually("no image is kept", () => keptOf(earlier_id).length === 0);
    await daemon.call("DELETE", `/api/functions/${id}`);
    expect(await daemon.stop()).toBe(0);
    expect(daemon.leftovers()).toEqual(NOTHING_LEFT);
  });
});
