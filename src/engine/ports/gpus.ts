/** The engine's port: the GPUs of this machine, each held by one container or instance at a time. */

/** Of a container or an instance: `ids` is empty, or names as many as `count`. */
export interface GpuRequest {
  readonly gpu_count: number;
  readonly gpu_ids: readonly string[];
}

/** The holder of a GPU. */
export interface GpuHolder {
  readonly tenant_id: string;
  /** Id of a container or of an instance. */
  readonly id: string;
}

export interface GpuState {
  readonly gpu_id: string;
  /** Qualified name: `<vendor>/<class>=<name>`. */
  readonly device: string;
  /** Further qualified names of the same GPU. */
  readonly aliases: readonly string[];
  readonly vendor: string;
  /** Null: free. */
  readonly holder: GpuHolder | null;
}

export interface GpuStates {
  /** By id. */
  readonly gpus: readonly GpuState[];
  /** Faults of the files that describe the GPUs. */
  readonly warnings: readonly string[];
}

/** The GPUs that a container or an instance holds. */
export interface HeldGpus {
  readonly gpu_ids: readonly string[];
  /** Variables of all its commands. */
  readonly environment: Readonly<Record<string, string>>;
}

export interface Gpus {
  /** Reads what changed of the files that describe the GPUs. */
  states(): Promise<GpuStates>;
  /**
   * Rejects with CAPACITY_FULL if the machine lacks the GPUs, or if they are held, with QUOTA_EXCEEDED above the tenant's
   * limit. It reserves nothing: the start of a container or an instance does, and may still fail with the same errors.
   */
  check(tenant_id: string, request: GpuRequest): Promise<void>;
  /** Returns the number of GPUs that a tenant's containers and instances hold. */
  countOf(tenant_id: string): number;
  /** Sets the function that returns the maximum of a tenant; null: no limit. */
  bound(gpusMax: (tenant_id: string) => number | null): void;
}
