/** An archive with more entries than code may have, on a real storage pool. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { tarHeader } from "../../src/engine/files/tar.ts";
import { ENTRY } from "../support/file-helper.ts";
import { eventually } from "../support/native.ts";
import { CodeGround } from "./code-ground.ts";

const held = new CodeGround();

beforeAll(async () => {
  await held.open();
  await held.tenant("t");
});
afterAll(() => held.stop());

async function* files() {
  for (let i = 0; i < 200; i++) {
    const headers = Array.from({ length: 1_000 }, (_, j) =>
      tarHeader({ ...ENTRY, name: `d/${i * 1_000 + j}`, size: 0 }),
    );
    yield Buffer.concat(headers);
  }
}

it("refuses 200,000 files, names the entry and leaves nothing", async () => {
  await expect(held.code.put("t", files())).rejects.toMatchObject({
    code: "INVALID_ARGUMENT",
    message: expect.stringMatching(/^archive entry d\/\d+ exceeds the number of entries/),
  });
  await eventually("the refused upload to go", async () => (await held.trees()).length === 0 && held.helpers() === 0);
  expect(await held.rows()).toEqual([]);
});
