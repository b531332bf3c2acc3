/**
 * What is no HTTP request: bytes that do not parse, headers above their bound, a client that takes too long. There is no
 * request object then, so the answer, in the one error body all the same, is written to the socket.
 */
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { AppError } from "../base/errors.ts";
import { LIMITS } from "../base/limits.ts";
import { isUploading } from "./upload.ts";

/** The refusal for an error of Node's parser. */
function refusalOf({ code = "" }: NodeJS.ErrnoException): AppError {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return new AppError(
        "HEADERS_TOO_LARGE",
        `request line and headers too large: limit ${LIMITS.header_bytes_max} bytes`,
      );
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new AppError("REQUEST_TIMEOUT", "request not received in time", {
        details: {
          expected: [`headers <= ${LIMITS.headers_timeout_ms} ms`, `request <= ${LIMITS.request_timeout_ms} ms`],
        },
      });
    default:
      return new AppError(
        "MALFORMED_REQUEST",
        `malformed HTTP/1.1 request: ${code.replace(/^HPE_/, "").toLowerCase()}`,
      );
  }
}

/** Node keeps the answer that a socket is in the middle of here; after its first byte nothing else can be said. */
type Answering = Socket & { readonly _httpMessage?: { readonly headersSent: boolean } | null };

/** `failed` makes the error's response. */
export function answerMalformed(server: Server, failed: (thrown: unknown) => Response): void {
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Answering) => {
    // Told once for each request; an upload has bounds of its own.
    if (error.code === "ERR_HTTP_REQUEST_TIMEOUT" && isUploading(socket)) return;
    if (!socket.writable || socket._httpMessage?.headersSent === true) {
      socket.destroy(error);
      return;
    }
    const response = failed(refusalOf(error));
    void response.text().then((body) => {
      const headers = [...response.headers, ["connection", "close"], ["content-length", Buffer.byteLength(body)]];
      const head = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
      if (socket.writable)
        socket.end(`HTTP/1.1 ${response.status} ${STATUS_CODES[response.status]}\r\n${head}\r\n${body}`);
      // What still comes is not read.
      socket.destroySoon();
    });
  });
}

/** Hands a request on that expects what nobody can promise (`Expect: x`); without this Node answers 417 by itself. */
export function refuseExpectations(server: Server, failed: (thrown: unknown) => Response): void {
  server.on("checkExpectation", (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const refusal = new AppError("INVALID_ARGUMENT", "unsupported value of the header Expect", {
      details: { expected: ["100-continue"] },
    });
    const response = failed(refusal);
    void response.text().then((body) => {
      const headers = {
        ...Object.fromEntries(response.headers),
        connection: "close",
        "content-length": Buffer.byteLength(body),
      };
      outgoing.writeHead(response.status, headers).end(body);
      incoming.resume();
    });
  });
}
