/** The verbs of private networks and names: both are lists. */
import type { ResponseOf } from "../../client/client.ts";
import type { Column } from "../output/table.ts";
import type { Session } from "../session/session.ts";

type Member = ResponseOf<"GET /api/networks">["networks"][number]["members"][number];
type Entry = ResponseOf<"GET /api/dns/entries">["entries"][number];

export async function listNetworks(session: Session): Promise<void> {
  const answer = await session.client().request("GET /api/networks");
  const rows = answer.networks.flatMap(({ name, members }) => members.map((member) => ({ network: name, ...member })));
  const columns: Column<Member & { readonly network: string }>[] = [
    { title: "NETWORK", value: ({ network }) => network },
    { title: "CONTAINER", value: ({ name }) => name },
    { title: "STATE", value: ({ state }) => state },
    { title: "ADDRESS", value: ({ ip_address }) => ip_address },
    { title: "ID", value: ({ container_id }) => container_id, format: () => "dim", isSpare: true },
  ];
  const empty = "no networks: hearth run -d --name box --network shop";
  session.show(answer, () => session.table(columns, rows, empty));
}

export async function listNames(session: Session): Promise<void> {
  const answer = await session.client().request("GET /api/dns/entries");
  const columns: Column<Entry>[] = [
    { title: "NAME", value: ({ container_name }) => container_name },
    { title: "NETWORK", value: ({ network }) => network },
    { title: "ADDRESS", value: ({ ip_address }) => ip_address },
    { title: "FULL NAME", value: ({ names }) => names[0] ?? null, isSpare: true },
    { title: "ID", value: ({ container_id }) => container_id, format: () => "dim", isSpare: true },
  ];
  const empty = "no names: hearth run -d --name box --network shop";
  session.show(answer, () => session.table(columns, answer.entries, empty));
}
