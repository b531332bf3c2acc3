/** A file system of its own for a data directory, which a test can fill. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";

export class SmallDisk {
  readonly path: string;
  readonly #directory = mkdtempSync("/var/tmp/hearth-disk-");

  constructor(size_mb: number) {
    this.path = `${this.#directory}/disk`;
    const image = `${this.#directory}/image`;
    mkdirSync(this.path);
    run("truncate", "-s", `${size_mb}M`, image);
    // Blocks as on any larger disk: smaller ones than pages leave holes in the file that SQLite shares by mapping it.
    run("mkfs.ext4", "-q", "-m", "0", "-b", "4096", image);
    run("mount", "-o", "loop", image, this.path);
  }

  remove(): void {
    // Another daemon's launcher may have a copy of the mount; the loop device goes when that ends.
    run("umount", "--lazy", this.path);
    rmSync(this.#directory, { recursive: true });
  }
}

function run(command: string, ...args: string[]): void {
  execFileSync(command, args, { stdio: "ignore" });
}
