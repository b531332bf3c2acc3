/**
 * Brings a store to the newest schema. `PRAGMA user_version` holds the number of the last migration applied; each runs in a
 * transaction of its own.
 */
import { AppError } from "../base/errors.ts";
import type { Connection } from "./connection.ts";
import { MIGRATIONS, type Migration } from "./migrations.ts";
import { READ_VERSION, writeVersion } from "./sql.ts";

/** The migrations that a store of this schema lacks. Throws INTERNAL if a newer program wrote it. */
export function missingMigrations(found: number, place: string, migrations: readonly Migration[]): Migration[] {
  const newest = migrations.at(-1)?.version ?? 0;
  if (found > newest) {
    throw new AppError(
      "INTERNAL",
      `schema of the store ${place} too new: ${found} (this version supports up to ${newest})`,
      {
        hint: "start the version of hearth that wrote it, or use another data directory",
      },
    );
  }
  return migrations.filter(({ version }) => version > found);
}

export function notMigrated(place: string, version: number, cause: unknown): AppError {
  return new AppError("INTERNAL", `cannot migrate the store ${place} to schema ${version}`, { cause });
}

/** Brings the file up to the newest version. Throws INTERNAL on a file that a newer program has written. */
export function migrate(connection: Connection, path: string, migrations: readonly Migration[] = MIGRATIONS): void {
  const found = Number(connection.rows(READ_VERSION.sql, [])[0]?.user_version ?? 0);
  for (const { version, statements } of missingMigrations(found, path, migrations)) {
    connection.exec("BEGIN IMMEDIATE");
    try {
      for (const sql of statements) connection.exec(sql);
      connection.exec(writeVersion(version).sql);
      connection.exec("COMMIT");
    } catch (cause) {
      if (connection.in_transaction) connection.exec("ROLLBACK");
      throw notMigrated(path, version, cause);
    }
  }
}
