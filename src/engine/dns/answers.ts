/**
 * Decides the answer to a name query, by the container that asks. The daemon answers names of containers; it forwards all
 * others to the name servers of the machine that the container's egress allows.
 *
 * A1 A container sees the names of its private network, and with `dns` those of all containers of its tenant with `dns`.
 *    For names of others the answer is that of a name that does not exist.
 * A2 Single labels, the domain `DOMAIN`, and addresses of the subnet are never asked of others.
 * A3 No container hides a public name: `<name>.<network>` without `DOMAIN` is a container's only where no top-level domain can be
 *    called like the network. A list of the present ones would age; their form does not (`mayBeTopLevel`). With `DOMAIN`, which
 *    resolvers append, it is a container's unless the name without it got no answer just before (unsettled.ts).
 * A4 `localhost` and what is below it are the asker itself; `invalid` and `onion` have no names (RFC 6761, RFC 7686).
 */
import type { Answer } from "dns-packet";
import type { AllowRule } from "../../base/egress.ts";
import type { Members, PlacedMember } from "../network/members.ts";
import { contains, parseAddress, type Subnet } from "../network/subnet.ts";
import { type Query, RCODE, type Reply } from "./message.ts";

/** Reserved for private use (ICANN, 2024-07-29). */
export const DOMAIN = "hearth.internal";
/** Addresses change with every start, so clients keep none. */
export const TTL_SECONDS = 0;

const LOCALHOST = "localhost";
/** What `localhost` and all names below it resolve to (RFC 6761, section 6.3). */
const LOOPBACK = "127.0.0.1";
/** Domains without names in the DNS (RFC 6761, section 6.4; RFC 7686). */
const NAMELESS = ["invalid", "onion"];

const SUFFIX = `.${DOMAIN}`;
const REVERSE_SUFFIX = ".in-addr.arpa";

const START_OF_AUTHORITY: Answer = {
  name: DOMAIN,
  type: "SOA",
  ttl: TTL_SECONDS,
  data: { mname: DOMAIN, rname: `hostmaster.${DOMAIN}`, serial: 1, refresh: 60, retry: 60, expire: 60, minimum: 0 },
};

/** Returns the answer to a container's query; null: a name server of the machine is asked. */
export function answerOf(members: Members, subnet: Subnet, asker: PlacedMember, query: Query): Reply | null {
  const { name, question } = query;
  if (question.class !== "IN" && question.class !== "ANY") return { rcode: RCODE.refused, isAuthoritative: false };
  if (name.endsWith(REVERSE_SUFFIX)) return reverseAnswer(members, subnet, asker, query);
  const top = name.slice(name.lastIndexOf(".") + 1);
  if (NAMELESS.includes(top)) return unknownName();
  const isOwn = name === DOMAIN || name.endsWith(SUFFIX);
  const found = find(members, asker, isOwn ? name.slice(0, -SUFFIX.length) : name, isOwn);
  const address = top === LOCALHOST ? LOOPBACK : found?.address;
  if (address !== undefined) {
    const isWanted = isType(question.type, "A");
    const record: Answer = { name: question.name, type: "A", ttl: TTL_SECONDS, data: address };
    return isWanted ? answered([record]) : answered([]);
  }
  if (name === DOMAIN) return answered(question.type === "SOA" ? [START_OF_AUTHORITY] : []);
  if (isOwn || (name !== "" && !name.includes("."))) return unknownName();
  return null;
}

/**
 * True for a label that a top-level domain may have, now or later: letters alone, or the ASCII form of other scripts (RFC 1123,
 * section 2.1; ICANN, gTLD Applicant Guidebook, 2.2.1.3.2).
 */
function mayBeTopLevel(label: string): boolean {
  return /^[a-z]+$/.test(label) || label.startsWith("xn--");
}

/** The public name that a name below `DOMAIN` may stand for, once a resolver has appended its search domain (A3); null for none. */
export function hiddenName(name: string): string | null {
  if (!name.endsWith(SUFFIX)) return null;
  const text = name.slice(0, -SUFFIX.length);
  const [, network, ...more] = text.split(".");
  return network !== undefined && more.length === 0 && mayBeTopLevel(network) ? text : null;
}

/** Finds `<name>` or `<name>.<network>`, in lower case (A1, A3). `isOwn`: the text stood before `DOMAIN`. */
function find(members: Members, asker: PlacedMember, text: string, isOwn: boolean): PlacedMember | null {
  const [name = "", network, ...more] = text.split(".");
  if (network !== undefined && !isOwn && mayBeTopLevel(network)) return null;
  const found = more.length > 0 ? null : members.named(asker.tenant_id, name);
  if (found === null || !isVisible(asker, found)) return null;
  return network === undefined || network === found.network ? found : null;
}

function isVisible(asker: PlacedMember, other: PlacedMember): boolean {
  if (asker.tenant_id !== other.tenant_id) return false;
  return (asker.network !== null && asker.network === other.network) || (asker.dns && other.dns);
}

/** The names of a container, the longest first. */
export function namesOf({ name, network }: Pick<PlacedMember, "name" | "network">): readonly string[] {
  return [...(network === null ? [] : [`${name}.${network}${SUFFIX}`]), `${name}${SUFFIX}`];
}

function reverseAnswer(members: Members, subnet: Subnet, asker: PlacedMember, query: Query): Reply | null {
  const octets = query.name.slice(0, -REVERSE_SUFFIX.length).split(".").reverse();
  const address = parseAddress(octets.join("."));
  if (address === null || !contains(subnet, address)) return null;
  const found = members.at(octets.join("."));
  if (found === null || !isVisible(asker, found)) return unknownName();
  const { name, type } = query.question;
  const record: Answer = { name, type: "PTR", ttl: TTL_SECONDS, data: namesOf(found)[0] ?? "" };
  return answered(isType(type, "PTR") ? [record] : []);
}

const isType = (asked: string, type: string): boolean => asked === type || asked === "ANY";

function answered(answers: readonly Answer[]): Reply {
  const authorities = answers.length === 0 ? [START_OF_AUTHORITY] : [];
  return { rcode: RCODE.ok, answers, authorities, isAuthoritative: true };
}

const unknownName = (): Reply => ({
  rcode: RCODE.unknown_name,
  authorities: [START_OF_AUTHORITY],
  isAuthoritative: true,
});

/** True if a container may send to port 53 of a name server, by this protocol. */
export function mayAsk(egress: PlacedMember["egress"], server: string, protocol: "udp" | "tcp"): boolean {
  if (typeof egress === "string") return egress === "on";
  const address = parseAddress(server);
  return address !== null && egress.some((rule) => isAllowed(rule, address, protocol));
}

function isAllowed(rule: AllowRule, address: number, protocol: "udp" | "tcp"): boolean {
  const block = 2 ** (32 - rule.prefix_length);
  const base = parseAddress(rule.address) ?? 0;
  const isInside = address >= base && address < base + block;
  return isInside && rule.port_min <= 53 && rule.port_max >= 53 && (rule.protocol ?? protocol) === protocol;
}
