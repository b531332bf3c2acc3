/** Every state machine: all states can be reached, and no verb leads out of the table. */
import { describe, expect, it } from "vitest";
import { INSTANCE_MACHINE } from "../pool/index.ts";
import { AppError } from "../src/base/errors.ts";
import type { Machine } from "../src/base/state-machine.ts";
import { functionStates } from "../src/functions/states.ts";
import { operationStates } from "../src/operations/states.ts";
import { terminalStates } from "../src/terminal/states.ts";

/** Machines with their terminal states: nothing leaves those, something leaves all others. */
const MACHINES: readonly [Machine<string, string>, readonly string[]][] = [
  [functionStates, ["deleting"]],
  [operationStates, ["succeeded", "failed", "cancelled", "timed_out"]],
  [terminalStates, ["terminated", "error"]],
  [INSTANCE_MACHINE, ["gone"]],
];

describe.each(MACHINES.map(([machine, terminal]) => [machine.name, machine, terminal] as const))(
  "the machine of a %s",
  (_name, machine, terminal) => {
    const rows = (state: string) => Object.entries(machine.table[state] ?? {}) as [string, string][];

    it("reaches every state from the first", () => {
      const seen = new Set([machine.initial]);
      for (const state of seen) for (const [, to] of rows(state)) seen.add(to);
      expect([...seen].sort()).toEqual([...machine.states].sort());
    });

    it("ends in its terminal states only", () => {
      expect(machine.states.filter((state) => rows(state).length === 0).sort()).toEqual([...terminal].sort());
    });

    it("leads to states of the table only", () => {
      const strange = machine.states.flatMap(rows).filter(([, to]) => !machine.states.includes(to));
      expect(strange).toEqual([]);
    });

    it("refuses a verb that the state does not know with WRONG_STATE and the states that do", () => {
      const verbs = new Set(machine.states.flatMap(rows).map(([verb]) => verb));
      for (const state of machine.states) {
        for (const verb of verbs) {
          if (machine.can(state, verb)) {
            expect(machine.next(state, verb)).toBe(machine.table[state]?.[verb]);
            continue;
          }
          const refusal = (() => {
            try {
              machine.next(state, verb);
            } catch (error) {
              return error;
            }
          })();
          expect(refusal).toBeInstanceOf(AppError);
          expect(refusal).toMatchObject({ code: "WRONG_STATE", details: { state } });
        }
      }
    });
  },
);
