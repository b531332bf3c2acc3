/** Every route of secrets and of the key that encrypts them. None answers a value, and none takes an Idempotency-Key. */
import { z } from "zod";
import { Answer } from "../base/answer.ts";
import { acknowledgement, pageQuery, secretName } from "../base/schema.ts";
import { route } from "../http/route.ts";
import type { SecretsRotation } from "./rotation.ts";
import { type SecretRecord, secretList, secretRecord, secretsKeyStatus, setSecret } from "./schema.ts";
import type { Secrets } from "./service.ts";

export interface SecretRoutesOptions {
  readonly secrets: Secrets;
  readonly rotation: SecretsRotation;
}

const ABOUT_NAME = { description: "Name of the secret.", examples: ["API_TOKEN"] };
/** A name that no secret can have is one that no secret has. */
const bySecret = z.object({ name: z.string().meta(ABOUT_NAME) });
const byNewSecret = z.object({ name: secretName.meta(ABOUT_NAME) });
const NAME_EXAMPLE = { name: "API_TOKEN" };

const SAMPLE: SecretRecord = {
  name: "API_TOKEN",
  size_bytes: 32,
  created_at: 1_795_262_400,
  updated_at: 1_795_262_400,
};

export function secretRoutes(options: SecretRoutesOptions) {
  return [...ownRoutes(options), ...keyRoutes(options)];
}

function ownRoutes({ secrets }: SecretRoutesOptions) {
  return [
    route({
      method: "GET",
      path: "/api/secrets",
      auth: "tenant",
      scope: "read",
      operation: "listSecrets",
      summary: "Lists the tenant's secrets without their values, newest first.",
      query: pageQuery,
      response: secretList,
      example: { response: { secrets: [SAMPLE], next_cursor: null } },
      handler: async (request) => {
        const page = request.page();
        return page.answer("secrets", await secrets.list(request.caller.tenant_id, page));
      },
    }),
    route({
      method: "PUT",
      path: "/api/secrets/:name",
      auth: "tenant",
      scope: "write",
      operation: "setSecret",
      summary: "Creates a secret (201) or replaces its value (200); no response contains the value.",
      params: byNewSecret,
      body: setSecret,
      response: secretRecord,
      other: { status: 201, response: secretRecord, example: SAMPLE },
      errors: ["QUOTA_EXCEEDED"],
      example: { params: NAME_EXAMPLE, body: { value: "s3cr3t-of-another-service-000000" }, response: SAMPLE },
      handler: async ({ caller, params, body }) => {
        const { value: text, value_base64 = "" } = body;
        const value = text === undefined ? Buffer.from(value_base64, "base64") : Buffer.from(text);
        try {
          const { record, is_new } = await secrets.set(caller.tenant_id, params.name, value);
          return is_new ? new Answer(201, record) : record;
        } finally {
          value.fill(0);
        }
      },
    }),
    route({
      method: "GET",
      path: "/api/secrets/:name",
      auth: "tenant",
      scope: "read",
      operation: "getSecret",
      summary: "Returns a secret without its value.",
      params: bySecret,
      response: secretRecord,
      errors: ["NOT_FOUND"],
      example: { params: NAME_EXAMPLE, response: SAMPLE },
      handler: ({ caller, params }) => secrets.get(caller.tenant_id, params.name),
    }),
    route({
      method: "DELETE",
      path: "/api/secrets/:name",
      auth: "tenant",
      scope: "write",
      operation: "deleteSecret",
      summary: "Deletes a secret, also if function versions name it; running instances keep the value until they end.",
      params: bySecret,
      response: acknowledgement,
      errors: ["NOT_FOUND"],
      example: { params: NAME_EXAMPLE, response: { success: true, message: "secret deleted" } },
      handler: async ({ caller, params }) => {
        await secrets.remove(caller.tenant_id, params.name);
        return { success: true as const, message: "secret deleted" };
      },
    }),
  ];
}

function keyRoutes({ rotation }: SecretRoutesOptions) {
  const status = { key_id: "5f0c1b7a93d2e846", earlier_key_ids: ["a1c4e9027b35d6f8"], pending_count: 42 };
  return [
    route({
      method: "GET",
      path: "/api/operator/secrets-key",
      auth: "operator",
      scope: "admin",
      operation: "getSecretsKey",
      summary: "Returns the id of the key that encrypts secrets, and the progress of its rotation.",
      response: secretsKeyStatus,
      example: { response: { ...status, earlier_key_ids: [], pending_count: 0 } },
      handler: () => rotation.status(),
    }),
    route({
      method: "POST",
      path: "/api/operator/secrets-key/rotate",
      auth: "operator",
      scope: "admin",
      operation: "rotateSecretsKey",
      summary: "Replaces the key that encrypts secrets; the daemon encrypts existing secrets again in the background.",
      response: secretsKeyStatus,
      errors: ["QUOTA_EXCEEDED"],
      example: { response: status },
      handler: () => rotation.rotate(),
    }),
  ];
}
