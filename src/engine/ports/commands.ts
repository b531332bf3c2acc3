/** The engine's port: commands in a container that runs, terminals included. */

export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

export interface RunRequest {
  readonly argv: readonly string[];
  /** `NAME=value` */
  readonly environment: readonly string[];
  readonly working_directory: string;
  /** 0 for none. */
  readonly timeout_ms: number;
  /** Between SIGTERM and SIGKILL, at the deadline and when the connection ends. */
  readonly grace_ms: number;
  /** Cap of each stream; bytes beyond it are dropped and flagged. Null for no cap. */
  readonly output_bytes_max: number | null;
  /** Output as it happens. Without it minit gathers what it can: fewer, larger pieces. */
  readonly is_stream: boolean;
  /** Standard input at the start; `has_more_stdin` is true if more follows. */
  readonly stdin?: Uint8Array;
  readonly has_more_stdin?: boolean;
  /** Runs it on a terminal: all output is stdout, and input ends with a character. */
  readonly terminal?: TerminalSize;
  /** True if the command outlives the connection. */
  readonly is_detached?: boolean;
  /** `<user>[:<group>]` as of `ContainerSpec.user`, in place of the container's; null or absent: the container's. */
  readonly user?: string | null;
}

/** To be attached to the main command of a container. */
export interface AttachRequest {
  /** True: its standard input is written here, where it has one. False: that ends. */
  readonly has_stdin: boolean;
}

export type OutputStream = "stdout" | "stderr";

export interface ExecListener {
  /** Called before any output. */
  onStarted?(pid: number): void;
  /** `chunk` is the listener's to keep. False pauses until `resume`. */
  onOutput(stream: OutputStream, chunk: Buffer): boolean;
  /** Called after a `write` that returned false: more input is accepted. */
  onDrain?(): void;
}

export interface ExitAnswer {
  /** 0 to 255; 128 + signal when a signal ended it; 127 command not found, 126 not executable. */
  readonly exit_code: number;
  readonly signal: number;
  readonly timed_out: boolean;
  readonly stdout_truncated: boolean;
  readonly stderr_truncated: boolean;
  readonly spawn_failed: boolean;
  /** Ended by a kill or a signal that was asked for. */
  readonly cancelled: boolean;
  /** From the spawn to the exit, as minit saw it. */
  readonly duration_ms: number;
  readonly cpu_ms: number;
  readonly memory_peak_kb: number;
}

export interface GatheredExit extends ExitAnswer {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

/** A command that runs in a container, with its streams; a terminal is one with a `TerminalSize`. */
export interface Exec {
  /**
   * Both settle exactly once: with minit's answer, or with an error if it refuses or the connection ends. That error is
   * INTERNAL, START_FAILED if minit never greeted, CAPACITY_FULL if too many commands run in the container.
   */
  readonly started: Promise<{ readonly pid: number }>;
  readonly exited: Promise<ExitAnswer>;
  /** Takes standard input. False: wait for `onDrain` with the next. */
  write(bytes: Uint8Array): boolean;
  /** Ends standard input after what was written. On a terminal this types its end-of-file character. */
  endStdin(): void;
  resize(size: TerminalSize): void;
  /** Signals its process group; on a terminal, that in the foreground. The signal follows the input written before. */
  signal(signal: number): void;
  /** Kills the whole process tree at once. `exited` settles, with an error if unread input is in front of the signal. */
  kill(): void;
  pause(): void;
  resume(): void;
  /** Ends the connection, and with it the command unless it is detached. */
  close(): void;
}

/** A command whose output is kept. */
export interface Gathering {
  readonly started: Promise<{ readonly pid: number }>;
  /** Rejects as that of `Exec` does, and with INTERNAL if minit sends nothing long after the command's deadline. */
  readonly exited: Promise<GatheredExit>;
  /** Ends the command unless it is detached. */
  close(): void;
}
