/**
 * Shares of the uplink: a queueing discipline (HTB) on the device that leads outside, with a class for each tenant that
 * has containers or instances. While the device is busy, the kernel serves the classes in turn, so a tenant with eight
 * senders gets as much as a tenant with one. An nft map leads from the address of a packet to its class (rules.ts).
 *
 * U1 Only a queueing discipline that the kernel itself chose (handle 0:), or one that this daemon left, is replaced. Every
 *    other is the operator's, or another daemon's.
 * U2 Without shares the daemon works as well: no start fails because of them.
 * U3 The number of classes is fixed. Tenants beyond it share a class with others.
 */
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { Uplink as UplinkSetting } from "../../base/config.ts";
import { errorText } from "../../base/errors.ts";
import { LIMITS } from "../../base/limits.ts";
import type { LauncherClient } from "../launcher/launcher.ts";
import type { Budget } from "../ports/machine.ts";

const COMMAND_TIMEOUT_MS = 5_000;
/** Handles of all daemons: the kernel itself gives those from 8000: on. */
const HANDLE_FIRST = 0x1000;
const HANDLE_COUNT = 0x7000;
const WHOLE = "1";
/** Class of the machine's own traffic, and of all that has no other class. */
const OWN = "2";
const TENANT_FIRST = 0x10;
/** A class sends so many bytes before it is the next one's turn: more than the largest packet, or large ones had more. */
const TURN_BYTES = 80_000;

interface Share {
  readonly index: number;
  readonly addresses: Set<string>;
}

export interface UplinkOptions {
  /** Null: not shared. */
  readonly setting: UplinkSetting | null;
  readonly host_tag: string;
  readonly run_dir: string;
}

export class Uplink {
  readonly #setting: UplinkSetting | null;
  readonly #handle: string;
  /** Names the device that has the classes, for the next process. */
  readonly #file: string;
  readonly #batch_file: string;
  readonly #shares = new Map<string, Share>();
  readonly #tenants = new Map<string, string>();
  /** Number of tenants in each class. */
  readonly #counts = Array.from({ length: LIMITS.uplink_classes }, () => 0);
  #isShared = false;

  constructor({ setting, host_tag, run_dir }: UplinkOptions) {
    this.#setting = setting;
    this.#handle = (HANDLE_FIRST + (Number.parseInt(host_tag, 16) % HANDLE_COUNT)).toString(16);
    this.#file = `${run_dir}/uplink`;
    this.#batch_file = `${run_dir}/uplink.tc`;
  }

  /** True if the classes are there. */
  get isShared(): boolean {
    return this.#isShared;
  }

  /** Makes the classes, in place of those that an earlier process left. Returns which resource is shared how, or why not. */
  async begin(client: LauncherClient): Promise<Budget> {
    const budget = (is_bounded: boolean, note: string): Budget => ({ name: "uplink", is_bounded, note });
    try {
      await this.end(client);
      if (this.#setting === null) return budget(false, "HEARTH_UPLINK is not set; tenants do not share the uplink");
      const { device, mbit } = this.#setting;
      const found = await this.#root(client, device);
      if (found === null) return budget(false, `no such device: ${device}`);
      if (found.handle === `${this.#handle}:`) await this.#delete(client, device);
      else if (found.handle !== "0:") {
        return budget(false, `${device} has a queueing discipline of another program: ${found.kind} ${found.handle}`);
      }
      // Known before it is there: a crash between the two leaves a file that leads to nothing.
      writeFileSync(this.#file, device, { mode: 0o600 });
      writeFileSync(this.#batch_file, this.#classes(device, mbit), { mode: 0o600 });
      await client.run(["tc", "-batch", this.#batch_file], COMMAND_TIMEOUT_MS);
      this.#isShared = true;
      return budget(true, `sending tenants share ${mbit} Mbit/s of ${device} equally`);
    } catch (error) {
      await this.end(client).catch(() => {});
      return budget(false, `cannot share the uplink: ${errorText(error)}`);
    }
  }

  /** Gives the device back to the kernel's own queueing discipline (U1). */
  async end(client: LauncherClient): Promise<void> {
    this.#isShared = false;
    const device = deviceIn(this.#file);
    if (device === null) return;
    const found = await this.#root(client, device);
    if (found?.handle === `${this.#handle}:`) await this.#delete(client, device);
    rmSync(this.#file, { force: true });
  }

  async #delete(client: LauncherClient, device: string): Promise<void> {
    await client.run(["tc", "qdisc", "delete", "dev", device, "root"], COMMAND_TIMEOUT_MS);
  }

  /** The class of an address that a tenant has from now on, until `leave`. */
  enter(address: string, tenant_id: string): string {
    this.leave(address);
    const share = this.#shares.get(tenant_id) ?? this.#newShare(tenant_id);
    share.addresses.add(address);
    this.#tenants.set(address, tenant_id);
    return this.#classId(TENANT_FIRST + share.index);
  }

  leave(address: string): void {
    const tenant_id = this.#tenants.get(address);
    const share = tenant_id === undefined ? undefined : this.#shares.get(tenant_id);
    if (tenant_id === undefined || share === undefined) return;
    this.#tenants.delete(address);
    share.addresses.delete(address);
    if (share.addresses.size > 0) return;
    this.#shares.delete(tenant_id);
    this.#counts[share.index] = (this.#counts[share.index] ?? 0) - 1;
  }

  /** In a class that has the fewest tenants. */
  #newShare(tenant_id: string): Share {
    const index = this.#counts.indexOf(Math.min(...this.#counts));
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    const share = { index, addresses: new Set<string>() };
    this.#shares.set(tenant_id, share);
    return share;
  }

  #classId(minor: number): string {
    return `${this.#handle}:${minor.toString(16)}`;
  }

  /** The queueing discipline of a device; null where there is no such device. */
  async #root(client: LauncherClient, device: string): Promise<{ kind: string; handle: string } | null> {
    if (!existsSync(`/sys/class/net/${device}`)) return null;
    const output = await client.run(["tc", "-j", "qdisc", "show", "dev", device], COMMAND_TIMEOUT_MS);
    const listed = JSON.parse(output) as readonly { kind: string; handle: string; root?: boolean }[];
    return listed.find(({ root }) => root === true) ?? null;
  }

  /**
   * The machine's own class has a tenth for certain, and in what is left the same turns as a tenant. A tenant's has next
   * to nothing for certain, and its turns.
   */
  #classes(device: string, mbit: number): string {
    const bytes_per_second = (mbit * 1_000_000) / 8;
    const { uplink_queue_bytes_min, uplink_queue_bytes_max } = LIMITS;
    const queue_bytes = clamp(bytes_per_second / 10, uplink_queue_bytes_min, uplink_queue_bytes_max);
    // Bytes that may leave at once after the timer was late by a millisecond.
    const burst = Math.max(65_536, Math.ceil(bytes_per_second / 1_000));
    const of = (minor: string, parent: string, rate: string) =>
      `class add dev ${device} parent ${this.#handle}:${parent} classid ${this.#handle}:${minor}` +
      ` htb rate ${rate} ceil ${mbit}mbit burst ${burst}b cburst ${burst}b quantum ${TURN_BYTES}`;
    const leaf = (minor: string, rate: string) => [
      of(minor, WHOLE, rate),
      `qdisc add dev ${device} parent ${this.#handle}:${minor} bfifo limit ${queue_bytes}`,
    ];
    const minors = this.#counts.map((_, index) => (TENANT_FIRST + index).toString(16));
    return [
      `qdisc add dev ${device} root handle ${this.#handle}: htb default 0x${OWN}`,
      of(WHOLE, "", `${mbit}mbit`),
      ...leaf(OWN, `${mbit * 100}kbit`),
      ...minors.flatMap((minor) => leaf(minor, "8kbit")),
      "",
    ].join("\n");
  }
}

function clamp(value: number, min: number, max: number): number {
  return Math.floor(Math.min(Math.max(value, min), max));
}

function deviceIn(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return null;
  }
}
