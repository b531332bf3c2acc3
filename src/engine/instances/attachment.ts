/** Gives a running instance the files and the egress of its function: mounts by the launcher, rules of the packet filter. */
import { together } from "../../base/concurrency.ts";
import { AppError, errorText } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoints.ts";
import { noteAttachment } from "../host/adoption.ts";
import type { EngineHost } from "../host/host.ts";
import { processFile } from "../kernel/control-groups.ts";
import type { NetworkSlot } from "../network/network.ts";
import { OPEN_POLICY, policyOf } from "../network/rules.ts";
import type { Attachment } from "../ports/instances.ts";

export interface AttachedTo {
  readonly id: string;
  readonly slot: NetworkSlot;
  readonly bundle: string;
  readonly cgroup: string;
}

/** True if the attachment changes nothing: every instance starts like that. */
export function isNothing({ code, secrets, egress }: Attachment): boolean {
  return code === null && secrets.size === 0 && egress === "on";
}

/**
 * Resolves when the files are there and the rules in force. Until its first await it notes the attachment on the host and
 * the policy of the slot, so that every removal of the instance ends both. Not retried with another launcher: the lost one
 * may have mounted a part. Rejects with START_FAILED.
 */
export async function attachTo(host: EngineHost, to: AttachedTo, attachment: Attachment): Promise<void> {
  const { id, slot, bundle, cgroup } = to;
  const { code, secrets, egress } = attachment;
  const policy = egress === "on" ? OPEN_POLICY : policyOf({ egress, ports: [] });
  const mount = async () => {
    if (code === null && secrets.size === 0) return;
    const launcher = await host.launcher();
    await launcher.attach({ procs: processFile(host.mode, cgroup), code, uid: slot.uid, secrets });
    failpoint("engine.attach.mounted");
  };
  try {
    noteAttachment(bundle, policy);
    failpoint("engine.attach.noted");
    await together(host.network.setPolicy(slot, policy), mount());
  } catch (cause) {
    throw new AppError("START_FAILED", `cannot attach to instance ${id}: ${errorText(cause)}`, { cause });
  }
}
