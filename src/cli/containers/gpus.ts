/** GPUs on the command line: how many, or which. */
import { InvalidArgumentError } from "commander";

export interface WantedGpus {
  readonly gpu_count: number;
  readonly gpu_ids?: string[];
}

/** Returns the fields of a container for `2` or `nvidia0,nvidia1`. Ids are the daemon's to check. */
export function gpus(text: string): WantedGpus {
  if (/^\d{1,3}$/.test(text)) return { gpu_count: Number(text) };
  const gpu_ids = text.split(",").map((id) => id.trim());
  if (gpu_ids.includes("")) throw new InvalidArgumentError("expected a number, or ids like nvidia0,nvidia1");
  return { gpu_count: gpu_ids.length, gpu_ids };
}
