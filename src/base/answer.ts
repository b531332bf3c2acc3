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

export interface StreamedOptions {
  readonly content_type: string;
  /** 200 unless given. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Each piece is nobody else's: its memory is given back when it is sent. */
  readonly is_exclusive?: boolean;
}

/** What a handler returns for an answer in pieces. Where nobody wants the body (HEAD) the source is ended unasked. */
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

/** The same pieces; `close` is called when they end, also where none is ever asked for: a generator would not notice. */
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
