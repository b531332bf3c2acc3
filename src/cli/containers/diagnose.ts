/** The verb `diagnose`: the network of a container, and checks of it. */
import type { ResponseOf } from "../../client/client.ts";
import { visible } from "../output/text.ts";
import { EXIT, Failure } from "../session/failure.ts";
import type { Flags, Session, Words } from "../session/session.ts";

type Network = ResponseOf<"GET /api/containers/:container_id/network">;
type Check = ResponseOf<"GET /api/containers/:container_id/network/diagnostics">["checks"][number];

function factsOf(network: Network): [string, string][] {
  const { ip_address, reserved_address, gateway, veth_host, mac_address, mtu, egress, counters } = network;
  const reserved = reserved_address === null ? "" : `, reserved: ${reserved_address}`;
  return [
    ["address", `${ip_address ?? "none"}${reserved}`],
    ["gateway", gateway],
    ["link", veth_host === null ? "none" : `eth0 (${mac_address ?? "missing"}, mtu ${mtu ?? "?"}) on ${veth_host}`],
    ["egress", typeof egress === "string" ? egress : egress.join(", ") || "nothing"],
    ["traffic", counters === null ? "none" : `${counters.rx_bytes} bytes in, ${counters.tx_bytes} bytes out`],
  ];
}

/** Exits with a refusal if a check failed, after the setup with `--mend`. */
export async function diagnose(session: Session, [name = ""]: Words, flags: Flags): Promise<void> {
  const params = { container_id: await session.containerId(name) };
  const client = session.client();
  const isMending = flags.mend === true;
  const report = isMending
    ? await client.request("POST /api/containers/:container_id/network/setup", { params })
    : await client.request("GET /api/containers/:container_id/network/diagnostics", { params });
  const network = await client.request("GET /api/containers/:container_id/network", { params });
  const mended: readonly string[] = "mended" in report ? report.mended : [];
  session.show({ network, ...report }, () => {
    const columns = [
      { title: "CHECK", value: (check: Check) => check.name },
      {
        title: "RESULT",
        value: ({ ok, name }: Check) => (!ok ? "failed" : mended.includes(name) ? "mended" : "ok"),
        format: ({ ok }: Check) => (ok ? ("green" as const) : ("red" as const)),
      },
      { title: "FOUND", value: ({ message }: Check) => message, isLong: true },
    ];
    return `${session.list(factsOf(network))}\n${session.table(columns, report.checks, "no checks")}`;
  });
  const failed = report.checks.filter(({ ok }) => !ok).map((check) => check.name);
  if (failed.length === 0) return;
  const hint = failed.includes("running")
    ? `start it: hearth start ${visible(name)}`
    : isMending
      ? "restart the container"
      : `mend it: hearth diagnose --mend ${visible(name)}`;
  throw new Failure(EXIT.refused, `${failed.length === 1 ? "a check" : "checks"} failed: ${failed.join(", ")}`, hint);
}
