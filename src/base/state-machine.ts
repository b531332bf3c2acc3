/**
 * State machines as tables. A concern's `states.ts` holds one table; `next` is the only source of WRONG_STATE, and
 * `test/states.test.ts` walks every table (all states reachable, terminal states closed).
 */
import { AppError } from "./errors.ts";

export interface Machine<State extends string, Verb extends string> {
  readonly name: string;
  readonly initial: State;
  readonly states: readonly State[];
  readonly table: { readonly [S in State]: { readonly [V in Verb]?: State } };
  /** The state that `verb` leads to. Throws WRONG_STATE where the table has no such row. */
  next(state: State, verb: Verb): State;
  /** Whether `verb` is legal in `state`. */
  can(state: State, verb: Verb): boolean;
}

export function machine<State extends string, Verb extends string>(
  name: string,
  initial: State,
  table: { readonly [S in State]: { readonly [V in Verb]?: State } },
): Machine<State, Verb> {
  const states = Object.keys(table) as State[];
  const article = /^[aeiou]/.test(name) ? "an" : "a";
  return {
    name,
    initial,
    states,
    table,
    can: (state, verb) => table[state][verb] !== undefined,
    next(state, verb) {
      const to = table[state][verb];
      if (to !== undefined) return to as State;
      const legal = states.filter((s) => table[s][verb] !== undefined);
      throw new AppError("WRONG_STATE", `cannot ${verb} ${article} ${name} that is ${state}`, {
        details: { state, expected: legal },
      });
    },
  };
}
