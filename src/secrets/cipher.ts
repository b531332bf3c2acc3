/**
 * Encryption of one value: AES-256-GCM with a random nonce. The additional data is the place of the value, so that a row
 * copied to another tenant, kind or name does not decrypt. Stored form: nonce, ciphertext, tag.
 */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import type { SecretsKey } from "./keys.ts";

const CIPHER = "aes-256-gcm";
/** 96 bits: random nonces of one key stay unique far beyond 2^32 values. */
export const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Owner, namespace and name of a value. */
export interface SecretPlace {
  readonly tenant_id: string;
  readonly kind: string;
  readonly name: string;
}

const additionalData = ({ tenant_id, kind, name }: SecretPlace): Buffer =>
  Buffer.from(JSON.stringify([tenant_id, kind, name]));

export function seal(key: SecretsKey, place: SecretPlace, value: Uint8Array): Uint8Array {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key.bytes, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(additionalData(place));
  return Buffer.concat([nonce, cipher.update(value), cipher.final(), cipher.getAuthTag()]);
}

/** Returns null for bytes that `seal` has not made with this key for this place. The caller owns the value. */
export function unseal(key: SecretsKey, place: SecretPlace, sealed: Uint8Array): Buffer | null {
  if (sealed.length < NONCE_BYTES + TAG_BYTES) return null;
  const nonce = sealed.subarray(0, NONCE_BYTES);
  const decipher = createDecipheriv(CIPHER, key.bytes, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(additionalData(place));
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
  // All of it: `final` of this mode returns no bytes, and throws unless the tag fits.
  const value = decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES));
  try {
    decipher.final();
    return value;
  } catch {
    value.fill(0);
    return null;
  }
}
