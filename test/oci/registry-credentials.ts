/** Stored credentials of registries on a store of a test. */
import { REGISTRY_KIND, RegistryCredentials } from "../../src/oci/credentials/service.ts";
import type { Store } from "../../src/store/store.ts";
import { makeSecrets } from "../secrets/made.ts";
import { quietLog, type Scratch } from "../store/scratch.ts";

export async function makeCredentials(scratch: Scratch, store?: Store, auth_file: string | null = null) {
  const made = await makeSecrets(scratch, store);
  const [secrets, values] = [made.of(REGISTRY_KIND), made.valuesOf(REGISTRY_KIND)];
  const credentials = new RegistryCredentials({ secrets, values, auth_file, log: quietLog });
  return { ...made, credentials };
}
