/** The bus on a real nats-server: the contract. */
import { afterAll, beforeAll, describe } from "vitest";
import { scratchStores } from "../store/scratch.ts";
import { TestNatsServer } from "../support/nats-server.ts";
import { busContract } from "./bus-contract.ts";
import { openJetStream } from "./jetstream-ground.ts";

const state = { number: 0 };

describe("the bus contract on JetStream", () => {
  const scratch = scratchStores();
  let server: TestNatsServer;
  beforeAll(async () => {
    server = await TestNatsServer.start();
  });
  afterAll(() => server.stop());
  busContract(() => openJetStream(scratch(), server.url, `contract${state.number++}`));
});
