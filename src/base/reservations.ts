/**
 * Bytes of tenants on their way to a disk. Whoever writes reserves the bytes first, beside what the tenant has already and what
 * all its other writers have reserved; so writers at once do not pass a limit together that each of them alone would keep.
 *
 * R1. A reservation grows before its bytes are written. That reads the store only where the limit seems reached.
 * R2. It ends by `release`, or by `commit` once the bytes count as what the tenant has. A commit and a look at what the tenant
 *     has take turns: no byte counts twice.
 * R3. Reservations live in memory. A crash ends them, and the next start removes the files that they stood for.
 */
import { KeyedMutex } from "./concurrency.ts";
import { AppError } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import type { Quotas } from "./tenant-limits.ts";

const MEGABYTE = 1024 * 1024;

export interface ReservationsOptions {
  /** Bytes that a tenant may have; null: no limit. */
  readonly max: (tenant_id: string) => number | null;
  /** Bytes that a tenant has, without those that are reserved. */
  readonly used: (tenant_id: string) => Promise<number>;
  readonly refusal: (max_bytes: number) => AppError;
}

/** Of a tenant with open reservations. */
interface Account {
  used_bytes: number;
  reserved_bytes: number;
  open_count: number;
}

export class Reservations {
  readonly #options: ReservationsOptions;
  readonly #accounts = new Map<string, Account>();
  /** R2. */
  readonly #turns = new KeyedMutex();

  constructor(options: ReservationsOptions) {
    this.#options = options;
  }

  /** Bytes that are reserved: of one tenant, or of all. */
  reservedBytes(tenant_id?: string): number {
    if (tenant_id !== undefined) return this.#accounts.get(tenant_id)?.reserved_bytes ?? 0;
    return this.#accounts.values().reduce((sum, { reserved_bytes }) => sum + reserved_bytes, 0);
  }

  /** Bytes that the tenant may still reserve; infinite without a limit. */
  async roomBytes(tenant_id: string): Promise<number> {
    const max_bytes = this.#options.max(tenant_id);
    if (max_bytes === null) return Number.POSITIVE_INFINITY;
    return this.#turns.run(tenant_id, async () => {
      const used_bytes = await this.#options.used(tenant_id);
      return Math.max(0, max_bytes - used_bytes - this.reservedBytes(tenant_id));
    });
  }

  /** Opens a reservation of no bytes. Every caller must release it. */
  async open(tenant_id: string): Promise<Reservation> {
    const account = this.#accounts.get(tenant_id) ?? { used_bytes: 0, reserved_bytes: 0, open_count: 0 };
    account.open_count++;
    this.#accounts.set(tenant_id, account);
    const inTurn = <Result>(work: () => Promise<Result>) => this.#turns.run(tenant_id, work);
    const close = () => {
      account.open_count--;
      if (account.open_count === 0) this.#accounts.delete(tenant_id);
    };
    const reservation = new Reservation(tenant_id, account, this.#options, inTurn, close);
    try {
      await reservation.look();
      return reservation;
    } catch (error) {
      reservation.release();
      throw error;
    }
  }
}

export class Reservation {
  readonly #tenant_id: string;
  readonly #account: Account;
  readonly #options: ReservationsOptions;
  readonly #inTurn: <Result>(work: () => Promise<Result>) => Promise<Result>;
  readonly #close: () => void;
  #bytes = 0;
  #isOpen = true;

  constructor(
    tenant_id: string,
    account: Account,
    options: ReservationsOptions,
    inTurn: <Result>(work: () => Promise<Result>) => Promise<Result>,
    close: () => void,
  ) {
    this.#tenant_id = tenant_id;
    this.#account = account;
    this.#options = options;
    this.#inTurn = inTurn;
    this.#close = close;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Bytes that this one may have in all, as far as is known; infinite without a limit. */
  get bytes_max(): number {
    const max_bytes = this.#options.max(this.#tenant_id);
    const { used_bytes, reserved_bytes } = this.#account;
    if (max_bytes === null) return Number.POSITIVE_INFINITY;
    return Math.max(this.#bytes, max_bytes - used_bytes - reserved_bytes + this.#bytes);
  }

  /** Reads what the tenant has. */
  async look(): Promise<void> {
    if (this.#options.max(this.#tenant_id) === null) return;
    await this.#inTurn(async () => {
      this.#account.used_bytes = await this.#options.used(this.#tenant_id);
    });
  }

  /** Grows to at least so many bytes in all; false if the limit, as far as is known, does not allow it. */
  tryReach(bytes: number): boolean {
    if (bytes <= this.#bytes) return true;
    const { bytes_max } = this;
    if (!this.#isOpen || bytes > bytes_max) return false;
    this.#resize(bytes);
    return true;
  }

  /** Grows to at least so many bytes in all. Rejects with the refusal. */
  async reach(bytes: number): Promise<void> {
    if (this.tryReach(bytes)) return;
    // The tenant may have deleted something since.
    await this.look();
    if (!this.tryReach(bytes)) throw this.refusal();
  }

  refusal(): AppError {
    return this.#options.refusal(this.#options.max(this.#tenant_id) ?? 0);
  }

  /** Gives back all but so many bytes. */
  shrink(bytes: number): void {
    if (this.#isOpen && bytes < this.#bytes) this.#resize(Math.max(0, bytes));
  }

  /** Runs what makes the bytes count as the tenant's (R2), and releases the reservation unless that rejects. */
  async commit<Result>(write: () => Promise<Result>): Promise<Result> {
    return this.#inTurn(async () => {
      const result = await write();
      // Without a look, others would take the room of what is written now.
      this.#account.used_bytes += this.#bytes;
      this.release();
      if (this.#account.open_count > 0 && this.#options.max(this.#tenant_id) !== null) {
        this.#account.used_bytes = await this.#options.used(this.#tenant_id);
      }
      return result;
    });
  }

  /** Harmless when repeated. */
  release(): void {
    if (!this.#isOpen) return;
    this.#resize(0);
    this.#isOpen = false;
    this.#close();
  }

  #resize(bytes: number): void {
    this.#account.reserved_bytes += bytes - this.#bytes;
    this.#bytes = bytes;
  }
}

/**
 * Files on the data disk that exist only while something is under way: uploads, archives, layers, exports. A tenant may have twice
 * what its images may take, for an archive beside the layers that are made of it, and some uploads; at most a part of the disk.
 */
export function temporaryFiles(quotas: Pick<Quotas, "of">, data_disk_mb: number): Reservations {
  const part_mb = Math.floor(data_disk_mb * LIMITS.temporary_disk_ratio);
  return new Reservations({
    max: (tenant_id) => {
      const { image_mb_max } = quotas.of(tenant_id);
      return image_mb_max === null
        ? null
        : Math.min(part_mb, 2 * image_mb_max + LIMITS.temporary_uploads_mb) * MEGABYTE;
    },
    used: async () => 0,
    refusal: (max_bytes) => {
      return new AppError("QUOTA_EXCEEDED", `temporary files of the tenant too large (limit ${max_bytes} bytes)`, {
        details: { expected: [String(max_bytes)] },
        hint: "wait until other transfers of the tenant end, or ask the operator for a higher image_mb_max",
      });
    },
  });
}
