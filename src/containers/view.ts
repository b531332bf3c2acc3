/** Containers as the API shows them: what the store says, and checks that look at the machine. */
import { LRUCache } from "lru-cache";
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

/** A check of a run's first process. */
interface Measured {
  /** The run's; a later run has another one. */
  readonly pid: number;
  readonly isResponsive: boolean;
  /** Monotonic. */
  readonly at_ms: number;
}

/** What is known of a container beside its row and what the engine has of it. */
interface Known {
  readonly measured: Measured | null;
  readonly isValid: boolean;
  readonly hasDesktop: boolean;
}

export class View {
  readonly #options: ViewOptions;
  /** By container: the last check of its first process. */
  readonly #measured = new LRUCache<string, Measured>({ max: LIMITS.readiness_checks_cached });

  constructor(options: ViewOptions) {
    this.#options = options;
  }

  /** With every check made now: its first process is asked, and so is the store of images. */
  async record(row: ContainerRow): Promise<ContainerRecord> {
    const [measured, isValid, hasDesktop] = await Promise.all([
      this.#measure(row.id),
      this.#isValid(row),
      isDesktop(row) ? this.#options.desktops.isReachable(row.id) : false,
    ]);
    return this.#made(row, { measured, isValid, hasDesktop });
  }

  /** Waits for the desktop of a container that was just started, if it has one. */
  async untilShown(row: ContainerRow): Promise<void> {
    if (isDesktop(row)) await this.#options.desktops.untilReachable(row.id);
  }

  /**
   * With the readiness that was measured last. What no check of this daemon has measured yet, and desktops, are checked now,
   * for `readiness_list_ms` at most; the store of images is asked once for each image.
   */
  async list({ items, last }: Listed<ContainerRow>): Promise<Listed<ContainerRecord>> {
    const { clock, desktops } = this.#options;
    const running = items.filter(({ state }) => state === "running");
    const wanted = running.filter((row) => isDesktop(row) || this.#last(row.id) === null);
    if (wanted.length > 0) {
      const checks = each(wanted, LIMITS.readiness_checks_at_once, async (row) => {
        if (this.#last(row.id) === null) await this.#measure(row.id);
        if (isDesktop(row)) await desktops.isReachable(row.id);
      });
      await Promise.race([checks, sleep(clock, LIMITS.readiness_list_ms)]);
    }
    const images = new Map(items.map((row) => [imageKey(row), row]));
    const valid = new Map<string, boolean>();
    await each([...images], LIMITS.readiness_checks_at_once, async ([key, row]) => {
      valid.set(key, await this.#isValid(row));
    });
    const known = (row: ContainerRow): Known => ({
      measured: this.#last(row.id),
      isValid: valid.get(imageKey(row)) === true,
      hasDesktop: isDesktop(row) && desktops.wasReachable(row.id),
    });
    return { items: items.map((row) => this.#made(row, known(row))), last };
  }

  /** The image of its root, since the reference may name another by now. A store that does not answer fails no check. */
  #isValid({ image_id, release }: ContainerRow): Promise<boolean> {
    return this.#options.contracts.holds(image_id, release).catch(() => true);
  }

  /** Null: it does not run. */
  async #measure(id: string): Promise<Measured | null> {
    const { engine, clock } = this.#options;
    const live = engine.containers.live(id);
    if (live === null) return null;
    const isResponsive = await live.control.ping(LIMITS.readiness_wait_ms, clock).then(
      () => true,
      () => false,
    );
    const measured = { pid: live.pid, isResponsive, at_ms: clock.monotonicMs() };
    this.#measured.set(id, measured);
    return measured;
  }

  /** The last check of the present run; null: there was none, or it does not run. */
  #last(id: string): Measured | null {
    const live = this.#options.engine.containers.live(id);
    const measured = this.#measured.get(id);
    return live !== null && measured?.pid === live.pid ? measured : null;
  }

  #made(row: ContainerRow, { measured, isValid, hasDesktop }: Known): ContainerRecord {
    const { engine, health, clock } = this.#options;
    const live = row.state === "running" ? engine.containers.live(row.id) : null;
    const iso = (ms: number | null) => (ms === null ? null : toIsoTime(ms));
    const checks = {
      state_running: row.state === "running",
      minit_responsive: live?.control.isOpen === true && measured?.isResponsive === true,
      network_configured: live !== null && engine.containers.isLinked(row.id),
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
      health: health.recordOf(row),
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
      checks_age_ms: live === null ? 0 : measured === null ? null : Math.round(clock.monotonicMs() - measured.at_ms),
    };
  }
}

const imageKey = ({ image_id, release }: ContainerRow): string => `${image_id} ${release ?? ""}`;
