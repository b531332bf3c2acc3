/**
 * Users: people with an e-mail address and a password, each the owner of a tenant that was made with them.
 *
 * V1. Wrong address and wrong password are refused with one text, after the same work: a read, a hash, a comparison.
 * V2. Tenant, user and first login are made in one commit. An address in its stored form belongs to one user at most.
 * V3. A new password ends all logins that did not set it, and in the same commit all API keys of the tenant if it is asked to.
 * V4. A deleted tenant has no user and no login from the commit on in which it is `deleting`.
 */
import type { Caller } from "../base/caller.ts";
import { type Clock, toEpochSeconds } from "../base/clock.ts";
import type { UsersChoice } from "../base/config.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import { type Listed, type Place, readPage } from "../base/paging.ts";
import type { Guard, Row, Statement, Store } from "../store/store.ts";
import type { Attempts } from "./attempts.ts";
import type { Logins, OpenLogin } from "./logins.ts";
import type { Passwords } from "./passwords.ts";
import type {
  ChangePassword,
  Identity,
  KeysLeft,
  LoginRequest,
  Register,
  ResetPassword,
  UserRecord,
  UserSession,
} from "./schema.ts";

/** Credentials of all kinds, as users need them. */
interface Credentials {
  /** Makes an access token that ends with the login. */
  loginToken(login: { readonly tenant_id: string; readonly login_id: string }, seconds: number): Promise<string>;
  /** Ends all API keys of a tenant, in one batch after `statements`. Resolves to their number and what `write` says. */
  revokeAll(
    tenant_id: string,
    statements: readonly Statement[],
  ): Promise<{ readonly conflict: number | null; readonly revoked_count: number }>;
  /** Number of API keys of a tenant. */
  count(tenant_id: string): Promise<number>;
  /** Call after credentials have ended. */
  forget(isConcerned: (caller: Caller) => boolean): void;
}

interface NewTenants {
  /** Makes the tenant of a user, in one batch with `guards`. Throws NAME_TAKEN, and the refusal of a guard. */
  createWith(tenant_id: string, name: string, guards: readonly Guard[]): Promise<unknown>;
}

/** A password that is to be set, and the login that stays. */
interface NewPassword extends Omit<ChangePassword, "current_password"> {
  readonly login_id: string | null;
}

export interface UsersOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly tenants: NewTenants;
  readonly keys: Credentials;
  readonly logins: Logins;
  readonly passwords: Passwords;
  readonly attempts: Attempts;
  readonly choice: UsersChoice;
  readonly users_max: number;
}

type UserRow = UserRecord & { readonly password: string; readonly is_known: number };

const COLUMNS = "u.seq, u.id AS user_id, u.email, u.name, u.tenant_id, u.created_at";
const ACTIVE = "FROM users u JOIN tenants t ON t.id = u.tenant_id AND t.state = 'active'";
/** `is_known`: 1 if the user has a login from a source, the first parameter. */
const SELECT = `SELECT ${COLUMNS}, u.password, EXISTS (SELECT 1 FROM user_logins WHERE user_id = u.id AND source = ?) AS is_known
  ${ACTIVE}`;

export class Users {
  readonly #options: UsersOptions;

  constructor(options: UsersOptions) {
    this.#options = options;
  }

  /** Throws FORBIDDEN while users are off, NAME_TAKEN, CAPACITY_FULL, RATE_LIMITED. `source`: as `sourceOf` names it. */
  async register({ email, password, name }: Register, source: string): Promise<UserSession> {
    const { store, clock, ids, tenants, logins, passwords, attempts, choice, users_max } = this.#options;
    this.#checkOn();
    if (choice !== "on") {
      throw new AppError("FORBIDDEN", "registration is off on this node", {
        hint: "ask the operator for an account, or sign in with an existing one",
      });
    }
    passwords.check();
    attempts.register(source);
    const taken = "EXISTS (SELECT 1 FROM users WHERE email = ?) AS taken";
    const before = await store.readOne(`SELECT (SELECT count(*) FROM users) AS count, ${taken}`, [email]);
    if (before?.taken === 1) throw emailTaken();
    if (Number(before?.count) >= users_max) throw tooManyUsers(users_max);
    const hash = await passwords.hash(password);
    const [user_id, tenant_id] = [ids.next("usr"), ids.next("ten")];
    const created_at = toEpochSeconds(clock.epochMs());
    const { login, statements } = logins.begin({ user_id, tenant_id }, source);
    const room: Guard = {
      statement: {
        sql: "UPDATE tenants SET state = state WHERE id = ? AND (SELECT count(*) FROM users) < ?",
        args: [tenant_id, users_max],
        expect_changes: 1,
      },
      refusal: () => tooManyUsers(users_max),
    };
    const insert: Guard = {
      statement: {
        sql: `INSERT INTO users (id, tenant_id, email, name, password, created_at) VALUES (?, ?, ?, ?, ?, ?)
          ON CONFLICT DO NOTHING`,
        args: [user_id, tenant_id, email, name, hash, created_at],
        expect_changes: 1,
      },
      refusal: emailTaken,
    };
    const first: Guard = { statement: statements[0], refusal: emailTaken };
    // The name of a tenant is for the operator, unique and shorter than an address may be.
    await tenants.createWith(tenant_id, `user-${user_id.slice("usr_".length)}`, [room, insert, first]);
    return this.#session(login, { user_id, email, name, tenant_id, created_at });
  }

  /** Throws UNAUTHORIZED (V1), FORBIDDEN while users are off, CAPACITY_FULL, RATE_LIMITED. */
  async login({ email, password }: LoginRequest, source: string): Promise<UserSession> {
    const { store, logins, attempts } = this.#options;
    this.#checkOn();
    const row = await this.#read("u.email = ?", email, source);
    const { isRight, isOutdated } = await this.#tryPassword(email, password, source, row);
    if (row === null || !isRight) throw new AppError("UNAUTHORIZED", "wrong e-mail address or password");
    attempts.succeeded(source, email, row.is_known === 1);
    const { login, statements } = logins.begin(row, source);
    // A tenant may be deleted, or the password set anew, while the hash is made.
    const guard = {
      sql: `UPDATE users SET password = ? WHERE id = ? AND password = ?
        AND EXISTS (SELECT 1 FROM tenants WHERE id = tenant_id AND state = 'active')`,
      args: [isOutdated ? await this.#rehash(password, row) : row.password, row.user_id, row.password],
      expect_changes: 1,
    };
    const { conflict, changes } = await store.write([guard, ...statements], { durable: true });
    if (conflict !== null) throw new AppError("UNAUTHORIZED", "wrong e-mail address or password");
    if ((changes[2] ?? 0) > 0) this.#forgetLogins(row.tenant_id);
    return this.#session(login, recordOf(row));
  }

  /** A hash with the present parameters. Where too many passwords wait, the earlier one stays until the next sign-in. */
  #rehash(password: string, { password: stored }: UserRow): Promise<string> {
    return this.#options.passwords.hash(password).catch(() => stored);
  }

  /** Throws UNAUTHORIZED, FORBIDDEN while users are off, RATE_LIMITED. */
  async refresh(refresh_token: string, source: string): Promise<UserSession> {
    const { logins, attempts, keys } = this.#options;
    this.#checkOn();
    attempts.refresh(source);
    const login = await logins.refresh(refresh_token, (login_id) => keys.forget(({ key_id }) => key_id === login_id));
    const row = await this.#read("u.id = ?", login.user_id, source);
    if (row === null) throw new AppError("UNAUTHORIZED", "invalid refresh token");
    return this.#session(login, recordOf(row));
  }

  /** Ends the login of the caller, and its tokens at once. Throws FORBIDDEN for a credential that is no user's. */
  async logout(caller: Caller): Promise<void> {
    const { logins, keys } = this.#options;
    const login_id = loginIdOf(caller);
    // After a failure too: it may be committed and not be synced.
    await logins.end(login_id).finally(() => keys.forget(({ key_id }) => key_id === login_id));
  }

  /** Throws UNAUTHORIZED for a wrong password, FORBIDDEN for a credential that is no user's, RATE_LIMITED, CAPACITY_FULL. */
  async changePassword(
    caller: Caller,
    { current_password, new_password, revoke_api_keys }: ChangePassword,
    source: string,
  ): Promise<KeysLeft> {
    const login_id = loginIdOf(caller);
    const login = await this.#options.logins.find(login_id);
    const row = login === null ? null : await this.#read("u.id = ?", login.user_id, source);
    if (row === null) throw new AppError("UNAUTHORIZED", "invalid credential");
    const { isRight } = await this.#tryPassword(row.email, current_password, source, row);
    if (!isRight) throw new AppError("FORBIDDEN", "current_password: wrong password");
    this.#options.attempts.succeeded(source, row.email, row.is_known === 1);
    return this.#setPassword(row, { new_password, revoke_api_keys, login_id });
  }

  /** For the operator: sets a password without the present one, and ends all logins (V3). Throws NOT_FOUND, CAPACITY_FULL. */
  async resetPassword({ email, ...wanted }: ResetPassword): Promise<UserRecord & KeysLeft> {
    const row = await this.#read("u.email = ?", email, "");
    if (row === null) throw new AppError("NOT_FOUND", `user '${email}' not found`);
    const left = await this.#setPassword(row, { ...wanted, login_id: null });
    return { ...recordOf(row), ...left };
  }

  /** Newest first. */
  list(place: Place): Promise<Listed<UserRecord>> {
    const toItem = (row: Row) => recordOf(row as unknown as UserRow);
    return readPage(this.#options.store, `SELECT ${COLUMNS} ${ACTIVE} WHERE true`, [], place, toItem, "u.seq");
  }

  /** Describes the caller. */
  async identity({ tenant_id, kind, key_id, scopes, container_ids }: Caller): Promise<Identity> {
    const login = kind === "user" ? await this.#options.logins.find(key_id) : null;
    const row = login === null ? null : await this.#read("u.id = ?", login.user_id, "");
    return {
      ...{ tenant_id, credential: kind, key_id, scopes: [...scopes] },
      scope_type: container_ids === undefined ? "full" : "container",
      scope_resource_ids: [...(container_ids ?? [])],
      user: row === null ? null : recordOf(row),
    };
  }

  async #setPassword(
    { user_id, tenant_id, password }: UserRow,
    { new_password, revoke_api_keys, login_id }: NewPassword,
  ): Promise<KeysLeft> {
    const { store, passwords, logins, keys } = this.#options;
    const update = {
      // Of two changes at a time the second one did not know the password that it replaces.
      sql: "UPDATE users SET password = ? WHERE id = ? AND password = ?",
      args: [await passwords.hash(new_password), user_id, password],
      expect_changes: 1,
    };
    const statements = [update, logins.endOthers(user_id, login_id)];
    const written = revoke_api_keys
      ? keys.revokeAll(tenant_id, statements)
      : store.write(statements, { durable: true }).then(({ conflict }) => ({ conflict, revoked_count: 0 }));
    const { conflict, revoked_count } = await written.finally(() => this.#forgetLogins(tenant_id));
    if (conflict !== null) throw new AppError("WRONG_STATE", "the password was changed meanwhile");
    return { api_keys_revoked: revoked_count, api_keys_remaining: await keys.count(tenant_id) };
  }

  /** Counts the attempt, which costs a hash (A3 of attempts.ts), then compares. `row`: null for an unknown address (V1). */
  async #tryPassword(email: string, password: string, source: string, row: UserRow | null) {
    this.#options.passwords.check();
    this.#options.attempts.login(source, email, row?.is_known === 1);
    return this.#options.passwords.verify(password, row?.password ?? null);
  }

  #read(condition: string, value: string, source: string): Promise<UserRow | null> {
    return this.#options.store.readOne(`${SELECT} WHERE ${condition}`, [source, value]) as Promise<UserRow | null>;
  }

  async #session({ login_id, tenant_id, refresh_token }: OpenLogin, user: UserRecord): Promise<UserSession> {
    const expires_in = LIMITS.access_token_seconds_max;
    const access_token = await this.#options.keys.loginToken({ tenant_id, login_id }, expires_in);
    const refresh_expires_in = LIMITS.refresh_token_seconds;
    return { user, tenant_id, access_token, refresh_token, token_type: "Bearer", expires_in, refresh_expires_in };
  }

  /** Some logins of the tenant have ended: the next request of each looks for its login. */
  #forgetLogins(tenant_id: string): void {
    this.#options.keys.forget((caller) => caller.tenant_id === tenant_id);
  }

  #checkOn(): void {
    if (this.#options.choice !== "off") return;
    throw new AppError("FORBIDDEN", "users are off on this node", {
      hint: "use an API key; the operator enables users with HEARTH_USERS=on",
    });
  }
}

function loginIdOf({ kind, key_id }: Caller): string {
  if (kind === "user") return key_id;
  throw new AppError("FORBIDDEN", "the credential is not a user's access token", {
    hint: "sign in with e-mail address and password first",
  });
}

function recordOf({ user_id, email, name, tenant_id, created_at }: UserRecord): UserRecord {
  return { user_id, email, name, tenant_id, created_at };
}

const emailTaken = (): AppError => new AppError("NAME_TAKEN", "a user with this e-mail address exists");

function tooManyUsers(users_max: number): AppError {
  return new AppError("CAPACITY_FULL", `user limit of this node reached (${users_max})`, { retryable: false });
}
