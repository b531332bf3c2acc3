/** Containers as the API shows them: what the store says, and checks that look at the machine. */
import { type Clock, sleep, toIsoTime } from "../base/clock.ts";
import { each } from "../base/concurrency.ts";
import { LIMITS } from "../base/limits.ts";
import type { Listed } from "../base/paging.ts";
import type { Engine } from "../engine/ports.ts";
import type { ImageContracts } from "./admission.ts";
import { type DesktopChecks, isDesktop } from "./desktop.ts";
import type { HealthChecks } from "./health/checks.ts";
import type { ContainerRow } from "./rows.ts";
import type { ContainerRecord } from "./schema.ts";

export interface ViewOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly health: Pick<HealthChecks, "recordOf">;
  readonly desktops: DesktopChecks;
  readonly contracts: ImageContracts;
}

export class View {
  readonly #engine: Engine;
  readonly #clock: Clock;
  readonly #health: Pick<HealthChecks, "recordOf">;
  readonly #desktops: DesktopChecks;
  readonly #contracts: ImageContracts;

  constructor({ engine, clock, health, desktops, contracts }: ViewOptions) {
    this.#engine = engine;
    this.#clock = clock;
    this.#health = health;
    this.#contracts = contracts;
    this.#desktops = desktops;
  }

  /** With every check made now: its first process is asked, and so is the store of images. */
  async record(row: ContainerRow): Promise<ContainerRecord> {
    const control = this.#engine.containers.live(row.id)?.control;
    const [isResponsive, isValid, hasDesktop] = await Promise.all([
      control?.ping(LIMITS.readiness_wait_ms, this.#clock).then(
        () => true,
        () => false,
      ) ?? false,
      // The image of its root, since the reference may name another by now. An image store that does not answer fails no
      // check.
      this.#contracts.holds(row.image_id, row.release).catch(() => true),
      isDesktop(row) ? this.#desktops.isReachable(row.id) : false,
    ]);
    return this.#made(row, isResponsive, isValid, hasDesktop);
  }

  /** Waits for the desktop of a container that was just started, if it has one. */
  async untilShown(row: ContainerRow): Promise<void> {
    if (isDesktop(row)) await this.#desktops.untilReachable(row.id);
  }

  /** With the checks of desktops made now, for `gui_list_ms` at most. */
  async list({ items, last }: Listed<ContainerRow>): Promise<Listed<ContainerRecord>> {
    const wanted = items.filter((row) => row.state === "running" && isDesktop(row));
    if (wanted.length > 0) {
      const checks = each(wanted, LIMITS.gui_checks_max, async ({ id }) => {
        await this.#desktops.isReachable(id);
      });
      await Promise.race([checks, sleep(this.#clock, LIMITS.gui_list_ms)]);
    }
    return { items: items.map((row) => this.glance(row)), last };
  }

  /** For a list, without asking anybody: as connected as it was a moment ago. */
  glance(row: ContainerRow): ContainerRecord {
    const isOpen = this.#engine.containers.live(row.id)?.control.isOpen === true;
    return this.#made(row, isOpen, true, isDesktop(row) && this.#desktops.wasReachable(row.id));
  }

  #made(row: ContainerRow, isResponsive: boolean, isValid: boolean, hasDesktop: boolean): ContainerRecord {
    const live = row.state === "running" ? this.#engine.containers.live(row.id) : null;
    const iso = (ms: number | null) => (ms === null ? null : toIsoTime(ms));
    const checks = {
      state_running: row.state === "running",
      minit_responsive: live !== null && isResponsive,
      network_configured: live !== null && this.#engine.containers.isLinked(row.id),
      managed_image_valid: isValid,
      gui_backend_reachable: isDesktop(row) ? live !== null && hasDesktop : null,
    };
    const exec_ready = checks.state_running && checks.minit_responsive && checks.managed_image_valid;
    return {
      container_id: row.id,
      tenant_id: row.tenant_id,
      name: row.name,
      state: row.state,
      pid: live?.pid ?? null,
      exit_code: row.exit_code,
      oom_killed: row.oom_killed,
      error_message: row.error_message,
      restart_count: row.restart_count,
      ip_address: live?.address ?? null,
      created_at: toIsoTime(row.created_at_ms),
      started_at: iso(row.started_at_ms),
      exited_at: iso(row.exited_at_ms),
      working_directory: row.working_directory,
      user: row.user,
      stop_signal: row.stop_signal,
      exposed_ports: [...row.exposed_ports],
      declared_volumes: [...row.declared_volumes],
      health: this.#health.recordOf(row),
      memory_limit_mb: row.memory_limit_mb,
      cpu_limit_percent: row.cpu_limit_percent,
      disk_limit_mb: row.disk_limit_mb,
      strict: row.strict,
      read_only_root: row.read_only_root,
      restart: row.restart,
      ttl_seconds: row.ttl_seconds,
      idle_seconds: row.idle_seconds,
      ports: [...row.ports],
      egress: typeof row.egress === "string" ? row.egress : [...row.egress],
      network: row.network,
      dns: row.dns,
      gpu_count: row.gpu_count,
      gpu_ids: [...(live?.gpus.gpu_ids ?? row.gpu_ids)],
      labels: row.labels,
      origin: row.origin,
      exec_ready,
      network_ready: checks.network_configured,
      ...(isDesktop(row)
        ? { gui_ready: exec_ready && checks.network_configured && checks.gui_backend_reachable === true }
        : {}),
      checks,
    };
  }
}
