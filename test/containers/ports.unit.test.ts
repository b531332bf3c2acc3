/** Ports of this machine, owned in the memory of this process: the contract of the port. */
import { describe } from "vitest";
import { randomIds } from "../../src/base/ids.ts";
import { LocalPorts } from "../../src/containers/network/ports.ts";
import { hostPortsContract } from "./contracts/ports.ts";

describe("ports of containers", () => hostPortsContract((options) => new LocalPorts({ ...options, ids: randomIds() })));
