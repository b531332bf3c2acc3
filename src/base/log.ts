/**
 * Structured log: one JSON object a line on standard error. Secrets, payloads and environment values are never
 * passed in. A level below the configured one costs one comparison.
 */
import { writeSync } from "node:fs";

const LEVELS = { debug: 20, info: 30, warn: 40, error: 50, silent: 100 } as const;
export type LogLevel = keyof typeof LEVELS;
export const LOG_LEVELS = Object.keys(LEVELS) as LogLevel[];

export type LogFields = Readonly<Record<string, string | number | boolean | null | undefined>>;

export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

const STDERR = 2;

/** A log that writes lines at or above `level`. Writing never throws: a closed standard error loses lines, not requests. */
export function createLog(level: LogLevel, epochMs: () => number): Log {
  const write = (name: LogLevel, message: string, fields?: LogFields): void => {
    if (LEVELS[name] < LEVELS[level]) return;
    const line = JSON.stringify({ time: new Date(epochMs()).toISOString(), level: name, message, ...fields });
    try {
      writeSync(STDERR, `${line}\n`);
    } catch {
      // Standard error is gone (closed pipe) or full (EAGAIN): there is nowhere left to say so.
    }
  };
  return {
    debug: (message, fields) => write("debug", message, fields),
    info: (message, fields) => write("info", message, fields),
    warn: (message, fields) => write("warn", message, fields),
    error: (message, fields) => write("error", message, fields),
  };
}
