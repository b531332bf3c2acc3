/**
 * The operator's key while the daemon runs. It is kept in a file of the data directory for the command line, unless a
 * setting gives it.
 *
 * P1. A new key is in the file before the store knows it: after a crash in between, the next start takes it from there.
 *     A rotation that fails leaves file and store with the key before it, also where the store made the change and
 *     could not sync it. Where they cannot be restored, the next start takes the key in the file.
 */
import { AppError } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Ids } from "../base/ids.ts";
import { readKept, writeKept } from "../base/kept-files.ts";
import { type Keys, newKeyText } from "./keys.ts";
import type { RotatedKey } from "./schema.ts";

export interface OperatorKeyOptions {
  /** Null if a setting gives the key. */
  readonly file: string | null;
  readonly keys: Pick<Keys, "rotateBootstrap" | "ensureBootstrap">;
  readonly ids: Ids;
}

export class OperatorKey {
  readonly #options: OperatorKeyOptions;
  #isRotating = false;

  constructor(options: OperatorKeyOptions) {
    this.#options = options;
  }

  /** Makes a new key; the one before is good for `overlap_seconds` more. Throws WRONG_STATE. */
  async rotate(overlap_seconds: number): Promise<RotatedKey> {
    const { file, keys, ids } = this.#options;
    if (file === null) {
      throw new AppError("WRONG_STATE", "a setting of the daemon provides the operator's key", {
        hint: "change HEARTH_BOOTSTRAP_KEY or the file of HEARTH_BOOTSTRAP_KEY_FILE and restart the daemon",
      });
    }
    if (this.#isRotating) throw new AppError("WRONG_STATE", "a rotation of the operator's key is in progress");
    this.#isRotating = true;
    const previous = readKept(file);
    try {
      const { text } = newKeyText(ids);
      writeKept(file, text);
      failpoint("tenants.operator.kept");
      const previous_expires_at = await keys.rotateBootstrap(text, overlap_seconds);
      return { key: text, previous_expires_at };
    } catch (error) {
      // The first failure is the one that is told (P1).
      await this.#restore(file, previous).catch(() => {});
      throw error;
    } finally {
      this.#isRotating = false;
    }
  }

  async #restore(file: string, previous: string): Promise<void> {
    writeKept(file, previous);
    if (previous !== "") await this.#options.keys.ensureBootstrap(previous);
  }
}
