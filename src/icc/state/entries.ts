/** Entries of a tenant's state, as the store has them and as answers show them. */
import { isUtf8 } from "node:buffer";
import { AppError } from "../../base/errors.ts";
import { checkShape } from "../../base/json-shape.ts";
import { invalid } from "../envelope/refusal.ts";

/** One key with its value. */
export interface StateValue {
  readonly key: string;
  readonly version: number;
  readonly content_type: string;
  readonly data: Uint8Array;
  readonly from: string;
  readonly updated_ms: number;
}

/** Event of a watch: an entry, or a key that was deleted. */
export type StateNews = StateValue | { readonly key: string; readonly version: number; readonly is_deleted: true };

/** Reads of a watch. */
export interface StateReader {
  find(tenant_id: string, key: string): Promise<StateValue | null>;
  list(
    tenant_id: string,
    options: { readonly prefix: string; readonly after: string; readonly entries_max: number },
  ): Promise<{ readonly entries: readonly StateValue[]; readonly next_after: string | null }>;
}

export const JSON_CONTENT = "application/json";
/** The media type without its parameters, in lower case. */
export const mediaType = (content_type: string): string => content_type.split(";", 1)[0]?.trim().toLowerCase() ?? "";

/** Media types whose values are JSON. */
export function isJson(content_type: string): boolean {
  const type = mediaType(content_type);
  return type === JSON_CONTENT || type.endsWith("+json");
}

/** Throws INVALID_ARGUMENT for bytes that are no JSON, or too deep. */
export function parsed(data: Uint8Array, path: string): unknown {
  if (!isUtf8(data)) throw invalid(path, "is no UTF-8");
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  try {
    checkShape(bytes);
    return JSON.parse(bytes.toString());
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw invalid(path, "is no JSON");
  }
}

/** A value as answers show it. */
export function stateItem({ data, updated_ms, ...rest }: StateValue) {
  const item = { ...rest, updated_at: Math.floor(updated_ms / 1_000) };
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  if (!isUtf8(bytes)) return { ...item, value: null, value_b64: bytes.toString("base64") };
  if (!isJson(rest.content_type)) return { ...item, value: bytes.toString() };
  try {
    return { ...item, value: parsed(bytes, "value") };
  } catch {
    return { ...item, value: bytes.toString() };
  }
}

export function newsItem(news: StateNews) {
  return "is_deleted" in news ? { ...news } : stateItem(news);
}
