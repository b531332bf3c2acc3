/** `--filter` of `hearth ps`, as docker has it: values of one name are alternatives, different names are conditions. */
import { usage } from "../session/failure.ts";
import type { ContainerRecord } from "../session/session.ts";

export const STATES: readonly ContainerRecord["state"][] = ["created", "starting", "running", "exited", "error"];

type Test = (record: ContainerRecord, value: string) => boolean;

const TESTS: Readonly<Record<string, Test>> = {
  name: ({ name }, value) => name.includes(value),
  id: ({ container_id }, value) => container_id.startsWith(value),
  status: ({ state }, value) => state === value,
  label: ({ labels }, value) => {
    const at = value.indexOf("=");
    return at < 0 ? Object.hasOwn(labels, value) : labels[value.slice(0, at)] === value.slice(at + 1);
  },
};

export interface Filter {
  /** True if it looks for states, so that none is left out for its state. */
  readonly hasStatus: boolean;
  readonly matches: (record: ContainerRecord) => boolean;
}

/** Parses the values of `--filter`. Throws a usage failure for another name, and for a state that no container has. */
export function filterOf(given: readonly string[]): Filter {
  const wanted = new Map<string, string[]>();
  for (const text of given) {
    const at = text.indexOf("=");
    const name = text.slice(0, Math.max(at, 0));
    if (!Object.hasOwn(TESTS, name)) {
      throw usage(`unknown filter: '${text}'`, `expected ${Object.keys(TESTS).join("=…, ")}=…`);
    }
    const value = text.slice(at + 1);
    if (name === "status" && !STATES.some((state) => state === value)) {
      throw usage(`unknown state: '${value}'`, `expected one of ${STATES.join(", ")}`);
    }
    wanted.set(name, [...(wanted.get(name) ?? []), value]);
  }
  return {
    hasStatus: wanted.has("status"),
    matches: (record) =>
      [...wanted].every(([name, values]) => values.some((value) => TESTS[name]?.(record, value) === true)),
  };
}
