/** Bounds of tenants' keys and tokens, and of users with their passwords and logins: part of `LIMITS`, with the same rules. */
export const ACCESS_LIMITS = {
  /** Keys of one tenant. */
  api_keys_per_tenant_max: 100,
  tenant_name_length_max: 128,
  /** Life of an access token. A leaked one is good for that long, unless its key is revoked. */
  access_token_seconds_default: 900,
  access_token_seconds_max: 3_600,
  /** Characters of an e-mail address (RFC 5321 §4.5.3.1.3 allows 254 bytes). */
  email_length_max: 254,
  user_name_length_max: 128,
  /** Characters of a new password (NIST SP 800-63B §5.1.1.2), and bytes of any: a longer text is refused unhashed. */
  password_length_min: 8,
  password_bytes_max: 1_024,
  /** Argon2id as OWASP recommends it (Password Storage Cheat Sheet): 19 MiB, two passes, one lane. */
  password_memory_kib: 19_456,
  password_passes: 2,
  password_lanes: 1,
  /** Hashes at once, each with its memory and one of the four threads of libuv that files need, and those that wait: 3 s. */
  password_hashes_max: 1,
  password_hashes_waiting_max: 64,
  /** Users of this node unless set: each has a tenant. */
  users_default: 1_000,
  users_max: 1_000_000,
  /** Limits of users' tenants, in percent of the defaults of others: anybody may register one. */
  user_limits_percent_default: 20,
  /** Of a user's tenant; other tenants have no limit by default. */
  user_requests_per_second_default: 100,
  /** Unpacked images of a user's tenant, however small its part: a Linux distribution with some packages. */
  user_image_mb_min: 1_024,
  /** Body of a request without a credential. */
  public_body_bytes_max: 16 * 1024,
  /** Life of a refresh token; each refresh begins it anew. */
  refresh_token_seconds: 7 * 24 * 3_600,
  /** Logins of one user; a further one ends the oldest. */
  logins_per_user_max: 20,
  /** Used refresh tokens of a login that are known: the use of one again ends the login. */
  spent_refresh_tokens_max: 32,
  /** Attempts with a password: of one source, of one source at one e-mail address, and of all sources at one. */
  login_source_burst: 30,
  login_source_per_second: 0.5,
  login_pair_burst: 10,
  login_pair_per_second: 1 / 60,
  login_email_burst: 50,
  login_email_per_second: 1 / 6,
  /** Registrations of one source, and of all. */
  register_source_burst: 5,
  register_source_per_second: 5 / 3_600,
  register_all_burst: 60,
  register_all_per_second: 1 / 60,
  /** Refreshes of one source: each one that succeeds is a synced commit. */
  refresh_source_burst: 60,
  refresh_source_per_second: 1,
  /** Sources and e-mail addresses whose attempts are known; the one seen longest ago is forgotten. */
  attempt_buckets_max: 10_000,
  /** Containers of one key, and keys of one container. */
  key_containers_max: 32,
  keys_per_container_max: 20,
  /** A use of a key is written this often at most, and so many keys in one batch. */
  key_use_interval_ms: 60_000,
  key_uses_per_batch: 500,
} as const;
