/**
 * Logins of users: each is made by a password, lives by refresh tokens that are good once, and is the source of access
 * tokens as an API key is. The store has digests of refresh tokens alone.
 *
 * G1. A refresh token is spent in the commit that stores its successor. A second use of it ends the login, since one of
 *     the two who have it has stolen it.
 * G2. A login ends in one synced commit; its access tokens end with it, because each request looks for its login.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { type Clock, type EpochSeconds, toEpochSeconds } from "../base/clock.ts";
import { AppError } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { LIMITS } from "../base/limits.ts";
import type { Statement, Store, WriteResult } from "../store/store.ts";

/** Begins the id of a login, which is the subject of its access tokens. No API key has such an id. */
const LOGIN_PREFIX = "lgn";
const SECRET_LENGTH = 32;
const REFRESH_TOKEN = /^hr_([0-9a-z]{16})_[0-9a-z]{32}$/;

export interface Login {
  readonly login_id: string;
  readonly user_id: string;
  readonly tenant_id: string;
  readonly expires_at: EpochSeconds;
}

/** A login with its new refresh token. */
export interface OpenLogin extends Login {
  readonly refresh_token: string;
}

type LoginRow = {
  readonly id: string;
  readonly user_id: string;
  readonly tenant_id: string;
  readonly secret_sha256: string;
  readonly spent_sha256: string;
  readonly expires_at: number;
};

const SELECT = `SELECT l.id, l.user_id, l.tenant_id, l.secret_sha256, l.spent_sha256, l.expires_at FROM user_logins l
  JOIN tenants t ON t.id = l.tenant_id AND t.state = 'active'`;

function digestOf(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}

const isSame = (a: string, b: string): boolean => timingSafeEqual(Buffer.from(a), Buffer.from(b));

/** The one refusal of a refresh token: its text does not tell what is wrong with it. */
const unknownRefreshToken = (reason_code?: string): AppError =>
  new AppError("UNAUTHORIZED", "invalid refresh token", {
    hint: "sign in with the password again",
    ...(reason_code === undefined ? {} : { reason_code }),
  });

export interface LoginsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
}

export class Logins {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #ids: Ids;

  constructor({ store, clock, ids }: LoginsOptions) {
    this.#store = store;
    this.#clock = clock;
    this.#ids = ids;
  }

  /** Returns a login that has not ended; null: it has, or never was. */
  async find(login_id: string): Promise<Login | null> {
    const row = await this.#store.readOne<LoginRow>(`${SELECT} WHERE l.id = ?`, [login_id]);
    return row === null || this.#isOver(row) ? null : loginOf(row);
  }

  /** A new login and the statements that store it: they end the oldest of a user who has too many. */
  begin(
    { user_id, tenant_id }: { readonly user_id: string; readonly tenant_id: string },
    source: string,
  ): { readonly login: OpenLogin; readonly statements: readonly [insert: Statement, evict: Statement] } {
    const now = toEpochSeconds(this.#clock.epochMs());
    const login_id = this.#ids.next(LOGIN_PREFIX);
    const refresh_token = this.#newToken(login_id);
    const expires_at = now + LIMITS.refresh_token_seconds;
    const insert: Statement = {
      sql: `INSERT INTO user_logins (id, user_id, tenant_id, source, secret_sha256, created_at, expires_at)
        VALUES (?, ?, ?, ?, ?, ?, ?)`,
      args: [login_id, user_id, tenant_id, source, digestOf(refresh_token), now, expires_at],
    };
    const evict: Statement = {
      sql: `DELETE FROM user_logins WHERE user_id = ? AND seq NOT IN
        (SELECT seq FROM user_logins WHERE user_id = ? ORDER BY seq DESC LIMIT ?)`,
      args: [user_id, user_id, LIMITS.logins_per_user_max],
    };
    return { login: { login_id, user_id, tenant_id, expires_at, refresh_token }, statements: [insert, evict] };
  }

  /**
   * Spends a refresh token for its successor (G1). Throws UNAUTHORIZED; `ended` is called first with the login that a
   * second use of the token has ended.
   */
  async refresh(token: string, ended: (login_id: string) => void): Promise<OpenLogin> {
    const [, name] = REFRESH_TOKEN.exec(token) ?? [];
    if (name === undefined) throw unknownRefreshToken();
    const login_id = `${LOGIN_PREFIX}_${name}`;
    const row = await this.#store.readOne<LoginRow>(`${SELECT} WHERE l.id = ?`, [login_id]);
    const digest = digestOf(token);
    if (row === null || this.#isOver(row)) throw unknownRefreshToken();
    const spent = JSON.parse(row.spent_sha256) as string[];
    if (isSame(row.secret_sha256, digest)) {
      const next = this.#newToken(login_id);
      const expires_at = toEpochSeconds(this.#clock.epochMs()) + LIMITS.refresh_token_seconds;
      const kept = [digest, ...spent].slice(0, LIMITS.spent_refresh_tokens_max);
      const update: Statement = {
        sql: "UPDATE user_logins SET secret_sha256 = ?, spent_sha256 = ?, expires_at = ? WHERE id = ? AND secret_sha256 = ?",
        args: [digestOf(next), JSON.stringify(kept), expires_at, login_id, digest],
        expect_changes: 1,
      };
      const { conflict } = await this.#store.write([update], { durable: true });
      if (conflict === null) return { ...loginOf(row), expires_at, refresh_token: next };
    } else if (!spent.some((one) => isSame(one, digest))) {
      // The id of a login alone does not end it.
      throw unknownRefreshToken();
    }
    await this.end(login_id).finally(() => ended(login_id));
    throw unknownRefreshToken("REFRESH_TOKEN_REUSED");
  }

  /** Ends one login (G2). Nothing to do for one that has ended. */
  end(login_id: string): Promise<WriteResult> {
    return this.#store.write([{ sql: "DELETE FROM user_logins WHERE id = ?", args: [login_id] }], { durable: true });
  }

  /** The statement that ends all logins of a user but one; null: all. */
  endOthers(user_id: string, login_id: string | null): Statement {
    return { sql: "DELETE FROM user_logins WHERE user_id = ? AND id <> ?", args: [user_id, login_id ?? ""] };
  }

  /** Deletes logins that have expired. */
  async prune(): Promise<void> {
    const now = toEpochSeconds(this.#clock.epochMs());
    const rows_max = LIMITS.delete_rows_per_pass;
    const sql = `DELETE FROM user_logins WHERE seq IN
      (SELECT seq FROM user_logins WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`;
    for (let isMore = true; isMore; ) {
      const { changes } = await this.#store.write([{ sql, args: [now, rows_max] }]);
      isMore = changes[0] === rows_max;
    }
  }

  #isOver({ expires_at }: Pick<LoginRow, "expires_at">): boolean {
    return expires_at * 1000 <= this.#clock.epochMs();
  }

  #newToken(login_id: string): string {
    return `hr_${login_id.slice(LOGIN_PREFIX.length + 1)}_${this.#ids.random(SECRET_LENGTH)}`;
  }
}

function loginOf({ id, user_id, tenant_id, expires_at }: LoginRow): Login {
  return { login_id: id, user_id, tenant_id, expires_at };
}
