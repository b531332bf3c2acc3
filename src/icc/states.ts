/** The states of a message in an inbox. The ledger of the bus makes each change by compare-and-set. */
import { machine } from "../base/state-machine.ts";

export const messageStates = machine("message", "unread", {
  unread: { ack: "acked", nack: "failed", expire: "expired" },
  acked: {},
  failed: {},
  expired: {},
});
