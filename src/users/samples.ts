/** Answers of a daemon to the examples of routes.ts, as the description of the API shows them. */
import { LIMITS } from "../base/limits.ts";
import type { Identity, UserRecord, UserSession } from "./schema.ts";

const user: UserRecord = {
  user_id: "usr_c27vy2t0bmq4pd3z",
  email: "ada@example.com",
  name: "Ada",
  tenant_id: "ten_6y8kwhcm0mksj007",
  created_at: 1_795_250_210,
};

const session: UserSession = {
  user,
  tenant_id: user.tenant_id,
  access_token:
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ0ZW5hbnRfaWQiOiJ0ZW5fNnk4a3doY20wbWtzajAwNyIsInN1YiI6Imxnbl94Mzc1YXJkemM1ZXlmNXo2In0.Z9HEzoagdY8sivwLI510UCCrfW7nX1sdIkCJXsDUXZU",
  refresh_token: "hr_x375ardzc5eyf5z6_8kdwpytmtcn201jz518tn1dsrfktbayp",
  token_type: "Bearer",
  expires_in: LIMITS.access_token_seconds_max,
  refresh_expires_in: LIMITS.refresh_token_seconds,
};

const identity: Identity = {
  tenant_id: user.tenant_id,
  credential: "key",
  key_id: "key_4hngdpsybs0x",
  scopes: ["read", "invoke", "write", "admin"],
  scope_type: "full",
  scope_resource_ids: [],
  user: null,
};

export const SAMPLES = { user, session, identity };
