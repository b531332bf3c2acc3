/** Compares the rules that nft(8) lists with those that were written, for the diagnostics of one container. */
import type { NetworkCheck } from "../ports/networks.ts";
import type { NamedElements } from "./rules.ts";

/** Counts the rules of each chain, in the text of a table: one line each, the chain's own hook included. */
function chainSizes(text: string): ReadonlyMap<string, number> {
  const sizes = new Map<string, number>();
  let chain: string | null = null;
  for (const line of text.split("\n").map((one) => one.trim())) {
    const begun = /^chain (\S+) \{$/.exec(line);
    const added = /^add rule inet \S+ (\S+) /.exec(line);
    if (begun !== null) {
      chain = begun[1] ?? "";
      sizes.set(chain, 0);
    } else if (line === "}") chain = null;
    else if (added !== null) sizes.set(added[1] ?? "", (sizes.get(added[1] ?? "") ?? 0) + 1);
    else if (chain !== null && line !== "") sizes.set(chain, (sizes.get(chain) ?? 0) + 1);
  }
  return sizes;
}

/**
 * Checks that a table has the chains that were written and the elements of one container. `found`: the table's listing,
 * empty without a table; `texts`: the listings of `maps`.
 */
export function ruleChecks(
  wanted: string,
  found: string,
  maps: readonly NamedElements[],
  texts: readonly string[],
): readonly NetworkCheck[] {
  const sizes = chainSizes(found);
  const wrong = [...chainSizes(wanted)].filter(([name, size]) => sizes.get(name) !== size).map(([name]) => name);
  const isThere = (text: string, element: string) => ` ${text.replace(/\s+/g, " ")}`.includes(` ${element}`);
  const lost = maps.flatMap(({ name, elements }, i) =>
    elements.filter((element) => !isThere(texts[i] ?? "", listed(name, element))).map(() => name),
  );
  const isEgress = (name: string) => name === "egress";
  return [
    named(
      "rules",
      found === ""
        ? ["the table of rules is missing"]
        : [
            ...wrong.map((name) => `the chain ${name} is not as it was written`),
            ...new Set(lost.filter((name) => !isEgress(name)).map((name) => `${name} lacks an entry of the container`)),
          ],
      "every rule is in force",
    ),
    named("egress", lost.some(isEgress) ? ["the egress policy is not in force"] : [], "the egress policy is in force"),
  ];
}

function named(name: NetworkCheck["name"], problems: readonly string[], good: string): NetworkCheck {
  return { name, ok: problems.length === 0, message: problems.length === 0 ? good : problems.join("; ") };
}

/** The part of an element that a listing has as it was written: nft(8) prints marks in another form. */
function listed(name: string, element: string): string {
  const [address = element] = /\b\d+(?:\.\d+){3}\b/.exec(element) ?? [];
  return name === "members" || name === "networks" || name === "named" ? address : element;
}
