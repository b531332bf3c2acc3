/** Shapes of users and their logins. */
import { z } from "zod";
import { SCOPES } from "../base/caller.ts";
import { LIMITS } from "../base/limits.ts";
import { acknowledgement, epochSeconds, nextCursor, textBytes, unused, wellFormed } from "../base/schema.ts";

/**
 * An address in the form in which it is compared and stored: NFC, lower case. The letters of both parts are anything but
 * spaces, control and invisible characters (so no header can be injected), and what RFC 5322 gives a meaning outside of
 * quotes.
 */
const email = wellFormed
  .max(LIMITS.email_length_max)
  .transform((value) => value.normalize("NFC").toLowerCase().normalize("NFC"))
  .pipe(
    z
      .string()
      .max(LIMITS.email_length_max)
      .regex(/^[^\s\p{C}@"(),:;<>[\\\]]{1,64}@[^\s\p{C}@"(),:;<>[\\\]]+$/u, {
        error: "must be an e-mail address such as ada@example.com",
      }),
  )
  .meta({
    description: "E-mail address of the user; upper and lower case are the same.",
    examples: ["ada@example.com"],
  });

/** Any password that may be right. */
const password = textBytes(LIMITS.password_bytes_max).describe("Password of the user.");

const newPassword = textBytes(LIMITS.password_bytes_max)
  .refine((value) => [...value.normalize("NFC")].length >= LIMITS.password_length_min, {
    error: `must have at least ${LIMITS.password_length_min} characters`,
    params: { expected: [`>= ${LIMITS.password_length_min} characters`] },
  })
  .refine((value) => new Set(value).size > 1, { error: "must not repeat one character" })
  .describe("New password.");

const userName = wellFormed
  .min(1)
  .max(LIMITS.user_name_length_max)
  .refine((value) => !/\p{Cc}/u.test(value), { error: "must not contain control characters" })
  .refine((value) => value.trim() === value, { error: "must not start or end with a space" })
  .describe("Name for people.");

/** Returns false for a password that is the e-mail address, which other people know. */
const isUnlike = (secret: string, address: string): boolean => secret.normalize("NFC").toLowerCase() !== address;

export const register = z
  .object({ email, password: newPassword, name: userName })
  .refine((body) => isUnlike(body.password, body.email), {
    path: ["password"],
    error: "must not be the e-mail address",
  })
  .meta({ id: "Register" });
export type Register = z.output<typeof register>;

export const login = z.object({ email, password }).meta({ id: "Login" });
export type LoginRequest = z.output<typeof login>;

export const refresh = z
  .object({
    refresh_token: wellFormed.max(LIMITS.credential_length_max).describe("Token of the last response; good once."),
  })
  .meta({ id: "RefreshLogin" });

export const logout = z
  .object({ refresh_token: unused("Without effect: the access token names the login that ends.") })
  .meta({ id: "Logout" });

const revoke_api_keys = z
  .boolean()
  .default(false)
  .describe("Revokes all API keys of the user's tenant too, those of containers included, and their tokens.");

export const changePassword = z
  .object({ current_password: password.describe("Present password."), new_password: newPassword, revoke_api_keys })
  .meta({ id: "ChangePassword" });
export type ChangePassword = z.output<typeof changePassword>;

export const resetPassword = z
  .object({ email, new_password: newPassword, revoke_api_keys })
  .meta({ id: "ResetPassword" });
export type ResetPassword = z.output<typeof resetPassword>;

export const userRecord = z
  .object({
    user_id: z.string().describe("Id of the user."),
    email: z.string().describe("E-mail address, in lower case."),
    name: z.string().describe("Name for people."),
    tenant_id: z.string().describe("Tenant of the user."),
    created_at: epochSeconds,
  })
  .meta({ id: "User" });
export type UserRecord = Readonly<z.output<typeof userRecord>>;

const keysLeft = z.object({
  api_keys_revoked: z.int().describe("Number of API keys that were revoked."),
  api_keys_remaining: z.int().describe("Number of API keys that the user's tenant still has."),
});
export type KeysLeft = Readonly<z.output<typeof keysLeft>>;

export const passwordChanged = acknowledgement.extend(keysLeft.shape).meta({ id: "PasswordChanged" });
export const passwordReset = userRecord.extend(keysLeft.shape).meta({ id: "PasswordReset" });

export const userList = z
  .object({ users: z.array(userRecord).describe("Newest first."), next_cursor: nextCursor })
  .meta({ id: "UserList" });

export const userSession = z
  .object({
    user: userRecord,
    tenant_id: z.string().describe("Tenant of the user."),
    access_token: z.string().describe("The token, for the header 'Authorization: Bearer <token>'."),
    refresh_token: z.string().describe("Token for POST /api/auth/refresh, good once; only this response contains it."),
    token_type: z.literal("Bearer").describe("Always Bearer."),
    expires_in: z.int().describe("Lifetime of the access token in seconds."),
    refresh_expires_in: z.int().describe("Lifetime of the refresh token in seconds."),
  })
  .meta({ id: "UserSession" });
export type UserSession = Readonly<z.output<typeof userSession>>;

export const identity = z
  .object({
    tenant_id: z.string().describe("Tenant of the credential."),
    credential: z
      .enum(["key", "token", "user", "invocation"])
      .describe("Type of the credential: an API key, a token made from one, a user's access token, or a call's token."),
    key_id: z.string().describe("Id of the key, login or invocation behind the credential."),
    scopes: z.array(z.enum(SCOPES)).describe("Scopes."),
    scope_type: z.enum(["full", "container"]).describe("container: the credential reaches only some containers."),
    scope_resource_ids: z.array(z.string()).describe("Ids of these containers."),
    user: userRecord.nullable().describe("The user who signed in; null for other credentials."),
  })
  .meta({ id: "Identity" });
export type Identity = Readonly<z.output<typeof identity>>;
