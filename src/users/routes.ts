/** Every route of users: register, sign in, refresh, sign out, change a password; and the operator's. */
import { addressBytes, contains, type Network, sourceOf } from "../base/addresses.ts";
import { LIMITS } from "../base/limits.ts";
import { acknowledgement, pageQuery } from "../base/schema.ts";
import { route } from "../http/route.ts";
import { SAMPLES } from "./samples.ts";
import {
  changePassword,
  identity,
  login,
  logout,
  passwordChanged,
  passwordReset,
  refresh,
  register,
  resetPassword,
  userList,
  userSession,
} from "./schema.ts";
import type { Users } from "./service.ts";

export interface UserRoutesOptions {
  readonly users: Users;
  readonly trusted_proxies: readonly Network[];
}

interface Sender {
  readonly address: string | null;
  header(name: string): string | null;
}

/** Characters of an X-Forwarded-For that are read; the end is the nearest proxy's. */
const FORWARDED_LENGTH_MAX = 1_024;

/**
 * The source that an attempt counts for. Behind trusted proxies it is the last address of X-Forwarded-For that is none of
 * them: what stands before it the client may have written itself.
 */
export function attemptSource({ address, header }: Sender, trusted: readonly Network[]): string {
  const isTrusted = (text: string): boolean => {
    const bytes = addressBytes(text);
    return bytes !== null && trusted.some((one) => contains(one, bytes));
  };
  const own = address ?? "";
  if (trusted.length === 0 || !isTrusted(own)) return sourceOf(own);
  const forwarded = (header("x-forwarded-for") ?? "").slice(-FORWARDED_LENGTH_MAX).split(",");
  const hops = [...forwarded.map((hop) => hop.trim()), own];
  const client = hops.findLast((hop) => !isTrusted(hop));
  return sourceOf(client !== undefined && addressBytes(client) !== null ? client : own);
}

export function userRoutes(options: UserRoutesOptions) {
  return [...publicRoutes(options), ...loginRoutes(options), ...operatorRoutes(options)];
}

const body_bytes_max = LIMITS.public_body_bytes_max;
const EXAMPLE = { email: "ada@example.com", password: "correct horse battery" };

function publicRoutes({ users, trusted_proxies }: UserRoutesOptions) {
  const sourceOfRequest = (request: Sender) =>
    attemptSource({ address: request.address, header: (name) => request.header(name) }, trusted_proxies);
  return [
    route({
      method: "POST",
      path: "/api/auth/register",
      auth: "public",
      operation: "registerUser",
      summary: "Creates a user with a tenant of default limits, and signs in.",
      body_bytes_max,
      body: register,
      status: 201,
      response: userSession,
      errors: ["FORBIDDEN", "NAME_TAKEN", "RATE_LIMITED", "CAPACITY_FULL"],
      example: { body: { ...EXAMPLE, name: "Ada" }, response: SAMPLES.session },
      handler: (request) => users.register(request.body, sourceOfRequest(request)),
    }),
    route({
      method: "POST",
      path: "/api/auth/login",
      auth: "public",
      operation: "loginUser",
      summary: "Signs in with e-mail address and password.",
      body_bytes_max,
      body: login,
      response: userSession,
      errors: ["UNAUTHORIZED", "FORBIDDEN", "RATE_LIMITED", "CAPACITY_FULL"],
      example: { body: EXAMPLE, response: SAMPLES.session },
      handler: (request) => users.login(request.body, sourceOfRequest(request)),
    }),
    route({
      method: "POST",
      path: "/api/auth/refresh",
      auth: "public",
      operation: "refreshLogin",
      summary: "Returns new tokens for a refresh token, which is good once; a second use ends the login.",
      body_bytes_max,
      body: refresh,
      response: userSession,
      errors: ["UNAUTHORIZED", "FORBIDDEN", "RATE_LIMITED"],
      example: { body: { refresh_token: "{refresh_token}" }, response: SAMPLES.session },
      handler: (request) => users.refresh(request.body.refresh_token, sourceOfRequest(request)),
    }),
  ];
}

function loginRoutes({ users, trusted_proxies }: UserRoutesOptions) {
  return [
    route({
      method: "POST",
      path: "/api/auth/logout",
      auth: "tenant",
      operation: "logoutUser",
      summary: "Ends the login of the access token, with all its tokens, at once.",
      body: logout,
      response: acknowledgement,
      errors: ["FORBIDDEN"],
      example: { response: { success: true, message: "signed out" } },
      handler: async ({ caller }) => {
        await users.logout(caller);
        return { success: true as const, message: "signed out" };
      },
    }),
    route({
      method: "GET",
      path: "/api/auth/me",
      auth: "tenant",
      operation: "identity",
      summary: "Returns the tenant, scopes and user of the credential.",
      response: identity,
      example: { response: SAMPLES.identity },
      handler: ({ caller }) => users.identity(caller),
    }),
    route({
      method: "POST",
      path: "/api/auth/password",
      auth: "tenant",
      operation: "changePassword",
      summary:
        "Changes the password of the user and ends all other logins; API keys stay unless revoke_api_keys is true.",
      body: changePassword,
      response: passwordChanged,
      errors: ["FORBIDDEN", "WRONG_STATE", "RATE_LIMITED", "CAPACITY_FULL"],
      example: {
        body: { current_password: EXAMPLE.password, new_password: "another horse battery", revoke_api_keys: true },
        response: { success: true, message: "password changed", api_keys_revoked: 2, api_keys_remaining: 0 },
      },
      handler: async (request) => {
        const { caller, body } = request;
        const source = attemptSource(
          { address: request.address, header: (name) => request.header(name) },
          trusted_proxies,
        );
        const left = await users.changePassword(caller, body, source);
        return { success: true as const, message: "password changed", ...left };
      },
    }),
  ];
}

function operatorRoutes({ users }: UserRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/users",
      auth: "operator",
      scope: "admin",
      operation: "listUsers",
      summary: "Lists all users, newest first; DELETE /api/tenants/{tenant_id} deletes a user with the tenant.",
      query: pageQuery,
      response: userList,
      example: { query: { limit: "10" }, response: { users: [SAMPLES.user], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("users", await users.list(page));
      },
    }),
    route({
      method: "POST",
      path: "/api/users/password",
      auth: "operator",
      scope: "admin",
      operation: "resetPassword",
      summary:
        "Sets the password of a user and ends all of the user's logins; API keys stay unless revoke_api_keys is true.",
      body: resetPassword,
      response: passwordReset,
      errors: ["NOT_FOUND", "WRONG_STATE", "CAPACITY_FULL"],
      example: {
        body: { email: EXAMPLE.email, new_password: "another horse battery" },
        response: { ...SAMPLES.user, api_keys_revoked: 0, api_keys_remaining: 1 },
      },
      handler: ({ body }) => users.resetPassword(body),
    }),
  ];
}
