/** The plan of a function's next version, for every verb that makes one. */
import { toEpochSeconds } from "../../base/clock.ts";
import { invariant } from "../../base/errors.ts";
import { type Author, apiScopes, type FunctionParts } from "../parts.ts";
import type { FunctionRow } from "../rows.ts";
import type { FunctionRecord, Smoke } from "../schema.ts";
import type { Plan } from "./activation.ts";
import type { ForeseenImage } from "./images.ts";

/** Settings of a version that are no fields of the function. */
export interface Making {
  readonly smoke?: Smoke | null | undefined;
  readonly note?: string | null | undefined;
}

/** Plans the version after the newest one. `to`: the function with it, but for the number of the version. */
export async function nextVersion(
  { rows, ids, clock }: FunctionParts,
  author: Author,
  { record: from, function_seq }: FunctionRow,
  to: FunctionRecord,
  { smoke = null, note = null }: Making,
  { fields, image, settings, use }: ForeseenImage,
): Promise<Plan> {
  const version = (await rows.newestVersion(function_seq)) + 1;
  const api_scopes = apiScopes(author, to);
  const record: FunctionRecord = { ...to, ...fields, api_scopes, version, current_version: version };
  const version_id = ids.next("fv");
  return {
    from,
    opening: { record, image, settings },
    use,
    smoke,
    makes_version: true,
    event_type: "updated",
    statements: () => {
      invariant(image !== null, "what is only planned is not written");
      const now = toEpochSeconds(clock.epochMs());
      const made = rows.update(from, record, { version_id, image, settings, api_scopes, now, by: author.key_id, note });
      return to.state === from.state ? made : [...made, rows.moveState(from.id, from.state, to.state, null, now)];
    },
  };
}
