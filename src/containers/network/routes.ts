/** Routes of the networks of containers: addresses, checks, egress. */
import { LIMITS } from "../../base/limits.ts";
import { acknowledgement, pageQuery } from "../../base/schema.ts";
import { route } from "../../http/route.ts";
import { ID_EXAMPLE } from "../samples.ts";
import { byContainer } from "../schema.ts";
import { NETWORK_SAMPLES as SAMPLES } from "./samples.ts";
import {
  allocationList,
  changedNetwork,
  changeNetwork,
  containerEgress,
  containerNetwork,
  containerRoute,
  networkDiagnostics,
  networkSetup,
} from "./schema.ts";
import type { ContainerNetworks } from "./service.ts";

export interface NetworkRoutesOptions {
  readonly networks: ContainerNetworks;
}

const READ_ERRORS = ["NOT_FOUND", "WRONG_STATE", "CONCURRENCY_LIMIT", "CAPACITY_FULL"] as const;

export function networkRoutes(options: NetworkRoutesOptions) {
  return [...addressRoutes(options), ...checkRoutes(options), ...egressRoutes(options)];
}

function addressRoutes({ networks }: NetworkRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/network/allocations",
      auth: "tenant",
      scope: "read",
      operation: "listNetworkAllocations",
      summary: "Lists the addresses of the tenant's containers: of those that run, and reserved ones.",
      query: pageQuery,
      response: allocationList,
      example: { response: { allocations: [SAMPLES.allocation], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("allocations", await networks.allocations(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/network",
      auth: "tenant",
      scope: "read",
      operation: "getContainerNetwork",
      summary: "Returns the network of a container, as the kernel has it now.",
      params: byContainer,
      response: containerNetwork,
      errors: READ_ERRORS,
      example: { params: ID_EXAMPLE, response: SAMPLES.network },
      handler: ({ caller, params }) => networks.get(caller.tenant_id, params.container_id),
    }),
    route({
      method: "PUT",
      path: "/api/containers/:container_id/network",
      auth: "tenant",
      scope: "write",
      operation: "putContainerNetwork",
      summary: `Reserves an address of the subnet for a container; it applies from the next start on. A tenant may reserve up to ${LIMITS.reserved_addresses_per_tenant_max}.`,
      params: byContainer,
      body: changeNetwork,
      response: changedNetwork,
      errors: [...READ_ERRORS, "ADDRESS_TAKEN", "QUOTA_EXCEEDED"],
      example: { params: ID_EXAMPLE, body: { ip_address: SAMPLES.network.ip_address }, response: SAMPLES.changed },
      handler: async ({ caller, params, body }) => {
        const message = await networks.setAddress(caller.tenant_id, params.container_id, body.ip_address);
        const network = await networks.get(caller.tenant_id, params.container_id);
        return { ...network, success: true as const, message };
      },
    }),
  ];
}

function checkRoutes({ networks }: NetworkRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/containers/:container_id/network/setup",
      auth: "tenant",
      scope: "write",
      operation: "setUpContainerNetwork",
      summary: "Checks the network of a running container and mends what is wrong; returns what was found and mended.",
      params: byContainer,
      response: networkSetup,
      errors: [...READ_ERRORS, "NOT_RUNNING"],
      example: { params: ID_EXAMPLE, response: SAMPLES.setup },
      handler: ({ caller, params }) => networks.setup(caller.tenant_id, params.container_id),
    }),
    route({
      method: "GET",
      path: "/api/containers/:container_id/network/diagnostics",
      auth: "tenant",
      scope: "read",
      operation: "diagnoseContainerNetwork",
      summary: "Checks the network of a container now: link, address, routes, neighbours, gateway, rules, egress, DNS.",
      params: byContainer,
      response: networkDiagnostics,
      errors: READ_ERRORS,
      example: { params: ID_EXAMPLE, response: SAMPLES.diagnostics },
      handler: ({ caller, params }) => networks.diagnostics(caller.tenant_id, params.container_id),
    }),
  ];
}

function egressRoutes({ networks }: NetworkRoutesOptions) {
  const change = <const M extends "POST" | "DELETE">(method: M, operation: string, summary: string) =>
    route({
      method,
      path: "/api/containers/:container_id/routes",
      auth: "tenant",
      scope: "write",
      operation,
      summary,
      params: byContainer,
      body: containerRoute,
      response: acknowledgement,
      errors: method === "POST" ? ["NOT_FOUND", "WRONG_STATE", "QUOTA_EXCEEDED"] : ["NOT_FOUND", "WRONG_STATE"],
      example: {
        params: ID_EXAMPLE,
        body: { destination: "203.0.113.0/24:443/tcp" },
        response: {
          success: true,
          message: `203.0.113.0/24:443/tcp is ${method === "POST" ? "allowed" : "no longer in the list"}`,
        },
      },
      handler: async ({ caller, params, body }) => {
        const { container_id } = params;
        const message = await networks.changeRoute(caller.tenant_id, container_id, body.destination, method === "POST");
        return { success: true as const, message };
      },
    });
  return [
    route({
      method: "GET",
      path: "/api/containers/:container_id/egress",
      auth: "tenant",
      scope: "read",
      operation: "getContainerEgress",
      summary: "Returns the egress policy of a container, whether it is in force, and counters.",
      params: byContainer,
      response: containerEgress,
      errors: ["NOT_FOUND", "WRONG_STATE"],
      example: { params: ID_EXAMPLE, response: SAMPLES.egress },
      handler: ({ caller, params }) => networks.egress(caller.tenant_id, params.container_id),
    }),
    change("POST", "addContainerRoute", "Adds a destination to the egress list of a container, also while it runs."),
    change(
      "DELETE",
      "removeContainerRoute",
      "Removes a destination from the egress list of a container; standing connections to it stop.",
    ),
  ];
}
