/** Answers of the routes of networks, as the description of the API shows them. */
import { SAMPLES as CONTAINERS } from "../samples.ts";
import type { ContainerNetwork, NetworkAllocation, NetworkDiagnostics } from "./schema.ts";

const { container_id, name, ports } = CONTAINERS.running;

const allocation: NetworkAllocation = {
  container_id,
  container_name: name,
  ip_address: "10.42.0.7",
  bridge_interface: "hearth0",
  veth_host: "h3fa1c05",
  veth_container: "eth0",
  setup_completed: true,
  allocation_time: 1_795_262_400,
  status: "active",
};

const counters = { rx_bytes: 1_420, tx_bytes: 960, rx_packets: 11, tx_packets: 9, rx_errors: 0, tx_errors: 0 };

const network: ContainerNetwork = {
  ...allocation,
  state: "running",
  reserved_address: null,
  addresses: ["10.42.0.7/32"],
  gateway: "10.42.0.1",
  subnet: "10.42.0.0/16",
  prefix_length: 16,
  mac_address: "02:01:0a:2a:00:07",
  mtu: 1_500,
  name_servers: ["203.0.113.53"],
  ports: [...ports],
  egress: "on",
  counters,
};

const checks: NetworkDiagnostics["checks"] = [
  { name: "running", ok: true, message: "the container runs" },
  { name: "link", ok: true, message: "eth0 and h3fa1c05 are up" },
  { name: "address", ok: true, message: "10.42.0.7 is set" },
  { name: "route", ok: true, message: "the default route leads to 10.42.0.1, and the host's route back" },
  { name: "neighbour", ok: true, message: "both ends know each other's hardware address" },
  { name: "gateway", ok: true, message: "the gateway 10.42.0.1 answers" },
  { name: "forwarding", ok: true, message: "the host forwards packets" },
  { name: "rules", ok: true, message: "every rule is in force" },
  { name: "egress", ok: true, message: "in force: on" },
  { name: "dns", ok: true, message: "name servers: 203.0.113.53" },
];

export const NETWORK_SAMPLES = {
  allocation,
  network,
  changed: {
    ...network,
    reserved_address: "10.42.0.7",
    success: true as const,
    message: "the container keeps its address",
  },
  setup: { success: true, message: "the network was set up", container_id, found: [], mended: [], checks },
  diagnostics: { container_id, state: "running" as const, ok: true, checked_at: 1_795_262_460, checks },
  egress: {
    container_id,
    state: "running" as const,
    egress: "on" as const,
    mode: "on" as const,
    destinations: [],
    always_refused: ["127.0.0.0/8", "169.254.0.0/16", "10.42.0.0/16"],
    in_force: true,
    counters,
  },
};
