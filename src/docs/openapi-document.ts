/** The shape of the description that openapi.ts makes, as far as its readers (the page, the tests) look at it. */
import type { Route } from "../http/route.ts";

type Json = Readonly<Record<string, unknown>>;

/** A schema as the document holds it; the keywords that readers of this project look at. */
export interface DocumentSchema {
  readonly [keyword: string]: unknown;
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly properties?: Readonly<Record<string, DocumentSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: DocumentSchema | boolean;
  readonly items?: DocumentSchema;
  readonly anyOf?: readonly DocumentSchema[];
  readonly enum?: readonly unknown[];
}

export interface DocumentParameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description?: string;
  readonly schema: DocumentSchema;
  readonly example?: unknown;
}

interface Media {
  readonly schema: DocumentSchema;
  readonly example?: unknown;
}

export interface DocumentOperation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description: string;
  readonly parameters: readonly (DocumentParameter | { readonly $ref: string })[];
  readonly requestBody?: { readonly required: boolean; readonly content: Readonly<Record<string, Media>> };
  readonly responses: Readonly<Record<string, { readonly $ref: string } | DocumentResponse>>;
  readonly "x-hearth-auth": Route["auth"];
  readonly "x-hearth-scope": Route["scope"];
}

export interface DocumentResponse {
  readonly description: string;
  readonly headers: Json;
  readonly content: Readonly<Record<string, Media>>;
}

export interface ApiDocument {
  readonly [field: string]: unknown;
  readonly openapi: string;
  readonly info: { readonly [field: string]: unknown; title: string; version: string; description: string };
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  /** By path; an operation by its method in lower case, beside `parameters`. */
  readonly paths: Record<string, Record<string, unknown>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, DocumentSchema>>;
    readonly responses: Readonly<Record<string, DocumentResponse>>;
    readonly parameters: Readonly<Record<string, DocumentParameter>>;
    readonly headers: Json;
    readonly securitySchemes: Json;
  };
}
