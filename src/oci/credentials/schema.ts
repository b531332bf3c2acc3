/** Shapes of stored credentials of registries: the request, and records without the password. */
import { z } from "zod";
import { LIMITS } from "../../base/limits.ts";
import { epochSeconds, nextCursor, text } from "../../base/schema.ts";

export const setRegistryCredentials = z
  .object({
    username: text(LIMITS.registry_username_length_max).min(1).describe("User name for the registry, without ':'."),
    password: text(LIMITS.registry_password_length_max)
      .min(1)
      .describe("Password or token for the registry. No response contains it."),
  })
  .meta({ id: "SetRegistryCredentials" });

export const registryCredentials = z
  .object({
    registry: z.string().describe("Host of the registry as references name it, with its port if it has its own."),
    username: z.string().nullable().describe("User name; null if the stored value does not decrypt."),
    created_at: epochSeconds,
    updated_at: epochSeconds.describe("Time of the last change, in seconds since the Unix epoch."),
  })
  .meta({ id: "RegistryCredentials", description: "Credentials for a registry, without the password." });
export type RegistryCredentialsRecord = Readonly<z.output<typeof registryCredentials>>;

export const registryCredentialsList = z
  .object({ registries: z.array(registryCredentials).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "RegistryCredentialsList" });
