/** The generated code of envelopes is what the generator makes of jets.proto today, and matches its reflection. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import protobuf from "protobufjs";
import { describe, expect, it } from "vitest";
import {
  envelopeDescriptor,
  envelopeProto,
  envelopeSchema,
  envelopeTypes,
} from "../../src/icc/envelope/description.ts";
import { PROJECT_FILES, readText } from "../support/project-files.ts";
import { generate, jetsRoot } from "./envelope-generator.ts";
import { SAMPLES } from "./sample-envelopes.ts";
import "protobufjs/ext/descriptor.js";

/** SHA-256 of the output of `protoc --descriptor_set_out` (3.21.12) for jets.proto. */
const PROTOC_DESCRIPTOR = "3dc2c168a5aadcefaace49c0dc1c34b092d56d9d4c5a4f22b1a83199e3e67536";

describe("the generated code of envelopes", () => {
  it.each(Object.entries(generate()))(
    "%s is up to date; otherwise run node test/icc/envelope-generator.ts",
    (name, text) => {
      expect(readFileSync(new URL(`../../src/icc/envelope/${name}`, import.meta.url), "utf8")).toBe(text);
    },
  );

  it("needs of protobufjs only the part without reflection and parser", () => {
    const files = PROJECT_FILES.filter((file) => /^src\/.*\.(ts|js)$/.test(file));
    const imports = files.flatMap((file) => [...readText(file).matchAll(/from "(protobufjs[^"]*)"/g)]);
    expect(new Set(imports.map(([, name]) => name))).toEqual(new Set(["protobufjs/minimal.js"]));
  });

  it("imports from the project only src/base into src/icc/envelope", () => {
    const files = PROJECT_FILES.filter((file) => /^src\/icc\/envelope\/.*\.ts$/.test(file));
    const imports = files.flatMap((file) => [...readText(file).matchAll(/from "(\.[^"]*)"/g)].map(([, name]) => name));
    expect(imports.filter((name) => !/^\.\/[\w.-]+$|^\.\.\/\.\.\/base\//.test(name ?? ""))).toEqual([]);
  });
});

describe("the description of envelopes", () => {
  it("has the text of jets.proto, which describes the same messages and enumerations", () => {
    const root = protobuf.parse(envelopeProto, { keepCase: true }).root.resolveAll();
    for (const [name, message] of Object.entries(envelopeSchema.messages)) {
      const fields = root.lookupType(`jets.${name}`).fieldsArray;
      expect(message.fields.map((field) => [field.name, field.number])).toEqual(
        fields.map(({ name, id }) => [name, id]),
      );
      expect(message.fields.filter(({ description }) => !/^[A-Za-z].*\.$/.test(description))).toEqual([]);
    }
    for (const [name, values] of Object.entries(envelopeSchema.enums))
      expect(root.lookupEnum(`jets.${name}`).values).toEqual(values);
  });

  it("has byte for byte the descriptor that protoc makes", () => {
    const bytes = Buffer.from(envelopeDescriptor.file_descriptor_set_b64, "base64");
    expect(createHash("sha256").update(bytes).digest("hex")).toBe(PROTOC_DESCRIPTOR);
  });

  it("has a descriptor from which clients build the same messages", () => {
    const bytes = Buffer.from(envelopeDescriptor.file_descriptor_set_b64, "base64");
    const root = protobuf.Root.fromDescriptor(bytes, { keepCase: true });
    const read = (from: protobuf.Root, encoded: Buffer) => from.lookupType("jets.Envelope").decode(encoded).toJSON();
    for (const sample of SAMPLES) expect(read(root, sample.bytes)).toEqual(read(jetsRoot(), sample.bytes));
  });

  it("lists the eight payload kinds with their permission levels", () => {
    expect(envelopeTypes.types.map(({ type, number, permission_levels }) => [type, number, permission_levels])).toEqual(
      [
        ["state_snapshot", 1, ["READ_ONLY", "WRITE_STATE", "ADMIN", "FULL"]],
        ["state_patch", 2, ["WRITE_STATE", "ADMIN", "FULL"]],
        ["exec_command", 3, ["EXECUTE", "ADMIN", "FULL"]],
        ["file_patch", 4, ["EXECUTE", "ADMIN", "FULL"]],
        ["env_patch", 5, ["EXECUTE", "ADMIN", "FULL"]],
        ["lifecycle_action", 6, ["WRITE_STATE", "ADMIN", "FULL"]],
        ["ack", 7, ["ADMIN", "FULL"]],
        ["error", 8, ["ADMIN", "FULL"]],
      ],
    );
  });
});
