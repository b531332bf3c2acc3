/** The contracts of the engine's ports: their slow cases, and the kinds of storage that contracts.test.ts leaves out. */
import { describe } from "vitest";
import { describeEngine } from "./contracts/booted-engine.ts";
import { filesContract, plainTree, poolTree, slowFilesContract } from "./contracts/files.ts";
import { slowInstancesContract } from "./contracts/instances.ts";
import { poolInDirectory, poolInFile, slowStorageContract, storageContract } from "./contracts/storage.ts";

describeEngine("runc", (booted) => describe("instances", () => slowInstancesContract(booted)));

describe("the storage pool in a file", () => slowStorageContract(poolInFile("simple")));

describe.each([
  ["in a file with full quotas", poolInFile("full")],
  ["in a directory of a btrfs", poolInDirectory],
])("the storage pool %s", (_, open) => {
  storageContract(open);
  slowStorageContract(open);
});

describe("files in a directory", () => slowFilesContract(plainTree));

describe("files in a subvolume of the storage pool", () => {
  filesContract(poolTree);
  slowFilesContract(poolTree);
});
