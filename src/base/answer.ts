/** Answers of handlers beside a plain JSON body: with a status and headers of their own, or in pieces. */

/** An answer with another status or more headers than the route's own. */
export class Answer<Body = unknown> {
  readonly status: number;
  readonly body: Body;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, body: Body, headers: Readonly<Record<string, string>> = {}) {
    this.status = status;
    this.body = body;
    this.headers = headers;
  }
}

/** A list that is made a piece at a time. A piece is small, and nobody needs it any more when the next is asked for. */
export class ListPieces {
  readonly source: AsyncIterable<readonly unknown[]>;

  constructor(source: AsyncIterable<readonly unknown[]>) {
    this.source = source;
  }
}

/**
 * An answer of a GET in JSON with fields that are `ListPieces`, or long lists. All of its bytes are there before the first leaves, within
 * the memory of requests.
 */
export class ListAnswer {
  readonly body: Readonly<Record<string, unknown>>;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    body: ListAnswer["body"],
    { status = 200, headers = {} }: Partial<Pick<ListAnswer, "status" | "headers">> = {},
  ) {
    this.body = body;
    this.status = status;
    this.headers = headers;
  }
}

export interface StreamedOptions {
  readonly content_type: string;
  /** 200 unless given. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** True if the answer owns its pieces: the memory of each is released after it is sent. */
  readonly is_exclusive?: boolean;
}

/** An answer in pieces. For HEAD the listener ends the source without reading it. */
export class Streamed {
  readonly source: AsyncIterable<Uint8Array>;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly is_exclusive: boolean;

  constructor(source: AsyncIterable<Uint8Array>, options: StreamedOptions) {
    const { content_type, status = 200, headers = {}, is_exclusive = false } = options;
    this.source = source;
    this.is_exclusive = is_exclusive;
    this.status = status;
    this.headers = { "content-type": content_type, ...headers };
  }
}

/**
 * Returns the same pieces. Calls `close` at their end, also if no piece is ever requested, which a generator would not
 * notice.
 */
export function closing(source: AsyncIterable<Uint8Array>, close: () => void): AsyncIterable<Uint8Array> {
  const state = { isBegun: false };
  async function* pieces(): AsyncGenerator<Uint8Array> {
    state.isBegun = true;
    try {
      yield* source;
    } finally {
      close();
    }
  }
  return {
    [Symbol.asyncIterator]() {
      const generator = pieces();
      return {
        next: () => generator.next(),
        return: () => {
          if (!state.isBegun) close();
          return generator.return(undefined);
        },
      };
    },
  };
}
