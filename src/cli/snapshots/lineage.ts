/** The lineage of a snapshot as a drawn tree: snapshots, and below each the containers whose files are nearest to it. */
import type { ResponseOf } from "../../client/client.ts";
import type { Format, Paint } from "../output/terminal.ts";
import { visible } from "../output/text.ts";
import { relative } from "../output/time.ts";

type Lineage = ResponseOf<"GET /api/snapshots/:snapshot_id/lineage">;
type Node = Lineage["nodes"][number];
type Container = Lineage["containers"][number];

const STATES: Readonly<Record<Container["state"], Format>> = {
  created: "dim",
  starting: "yellow",
  running: "green",
  exited: "dim",
  error: "red",
};

export interface LineageOptions {
  readonly now: number;
  readonly paint: Paint;
}

/** One line per snapshot and container, each with its end. A snapshot whose parent is missing is a root. */
export function lineageTree(lineage: Lineage, { now, paint }: LineageOptions): string {
  const known = new Set(lineage.nodes.map(({ snapshot_id }) => snapshot_id));
  const parentOf = ({ parent_snapshot_id: id }: Node) => (id !== null && known.has(id) ? id : null);
  const children = Map.groupBy(lineage.nodes, parentOf);
  const containers = Map.groupBy(lineage.containers, ({ snapshot_id }) => snapshot_id);
  const lines: string[] = [];
  // Not recursive: a chain of snapshots may be longer than the stack.
  const open = (children.get(null) ?? []).map((node) => ({ node, head: "", indent: "" })).reverse();
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { node, head, indent } = next;
    lines.push(`${head}${nodeText(node, lineage.snapshot_id, { now, paint })}\n`);
    const own = containers.get(node.snapshot_id) ?? [];
    const below = children.get(node.snapshot_id) ?? [];
    for (const [i, container] of own.entries()) {
      const isLast = i === own.length - 1 && below.length === 0;
      lines.push(`${indent}${isLast ? "└── " : "├── "}${containerText(container, paint)}\n`);
    }
    const nodes = below.map((child, i) => {
      const isLast = i === below.length - 1;
      return {
        node: child,
        head: `${indent}${isLast ? "└── " : "├── "}`,
        indent: `${indent}${isLast ? "    " : "│   "}`,
      };
    });
    open.push(...nodes.reverse());
  }
  return lines.join("");
}

function nodeText({ snapshot_id, name, created_at }: Node, asked: string, { now, paint }: LineageOptions): string {
  const id = snapshot_id === asked ? paint("bold", snapshot_id) : snapshot_id;
  return `${id}${name === null ? "" : ` ${visible(name)}`}  ${paint("dim", relative(created_at, now))}`;
}

function containerText({ name, kind, state }: Container, paint: Paint): string {
  return `${visible(name)}  ${kind}, ${paint(STATES[state], state)}`;
}
