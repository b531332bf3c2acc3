/** resolv.conf(5) of instances and containers, made from that of the machine. */
import { readFileSync } from "node:fs";

/** `resolv.conf` for instances: the machine's, without name servers that only the machine itself reaches. */
export function instanceResolvConf(text: string): string {
  return text
    .split("\n")
    .filter((line) => !/^\s*nameserver\s+(127\.|::1|0\.0\.0\.0)/.test(line))
    .join("\n");
}

/**
 * `resolv.conf` for containers with names: their name server, and the machine's search domains and options after theirs. Without
 * `ndots`: with it a resolver would ask for `github.com.<domain>`, which may be a container, before `github.com`.
 */
export function memberResolvConf(text: string, gateway: string, domain: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  const valuesOf = (keyword: string) => {
    const line = lines.findLast((one) => one.startsWith(`${keyword} `) || one.startsWith(`${keyword}\t`));
    return line?.slice(keyword.length).trim().split(/\s+/) ?? [];
  };
  const search = [domain, ...valuesOf("search").filter((one) => one !== domain && one !== ".")];
  const given = lines.filter((line) => /^options\s/.test(line)).map((line) => line.replace(/\s+ndots:\S*/g, ""));
  const options = given.filter((line) => line !== "options");
  return [`nameserver ${gateway}`, `search ${search.join(" ")}`, ...options, ""].join("\n");
}

/** The machine's resolv.conf; empty where there is none. */
export function readMachineResolvConf(path = "/etc/resolv.conf"): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
