/** The contracts of the engine's ports, on every OCI runtime that set-up installs and on the storage pool's usual kind. */
import { describe, expect, it } from "vitest";
import { profileImage } from "../../src/installation/profiles.js";
import { attachmentsContract } from "./contracts/attachments.ts";
import { describeEngine } from "./contracts/booted-engine.ts";
import { containersContract } from "./contracts/containers.ts";
import { filesContract, plainTree } from "./contracts/files.ts";
import { imagesContract } from "./contracts/images.ts";
import { instancesContract, slowInstancesContract } from "./contracts/instances.ts";
import { residentsContract } from "./contracts/residents.ts";
import { socketsContract } from "./contracts/sockets.ts";
import { poolInFile, storageContract } from "./contracts/storage.ts";

for (const oci_runtime of ["crun", "runc"]) {
  describeEngine(oci_runtime, (booted) => {
    it("names the runtime it found", () => {
      expect(booted.engine.info()).toMatchObject({ oci_runtime, image: profileImage().reference });
      expect(booted.engine.info().oci_runtime_version).toContain(oci_runtime);
    });

    describe("images", () => imagesContract(booted));
    describe("containers", () => containersContract(booted));
    describe("sockets", () => socketsContract(booted));
    describe("instances", () => {
      instancesContract(booted);
      if (oci_runtime === "crun") slowInstancesContract(booted);
    });
    describe("attachments", () => attachmentsContract(booted, oci_runtime === "crun" ? 300 : 30));
    describe("resident processes", () => residentsContract(booted));
  });
}

describe("the storage pool in a file", () => storageContract(poolInFile("simple")));

describe("files in a directory", () => filesContract(plainTree));
