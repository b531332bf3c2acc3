/** The requests of a tenant, counted in the memory of this process: the contract of the port. */

import { describe } from "vitest";
import { TransferTurns } from "../../src/base/transfer-turns.ts";
import { LocalRates } from "../../src/http/rates.ts";
import { rateLimiterContract } from "./contracts/rates.ts";

describe("the requests of a tenant", () =>
  rateLimiterContract((clock) => new LocalRates(clock, new TransferTurns(clock))));
