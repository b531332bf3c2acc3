/** People who use a daemon from different addresses: each address of 127.0.0.0/8 is a source of its own. */
import { request } from "node:http";
import { checkAnswer } from "./answers.ts";
import type { Daemon } from "./daemon.ts";

export interface PersonAnswer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape.
  readonly body: any;
}

export const PASSWORD = "correct horse battery";

export class Person {
  readonly #daemon: Daemon;
  readonly address: string;

  /** `host`: the last number of the address, from 2 on. */
  constructor(daemon: Daemon, host: number, network = 1) {
    this.#daemon = daemon;
    this.address = `127.0.${network}.${host}`;
  }

  /** Sends a request from this address, on a connection of its own. Throws as `Daemon.call`. */
  call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<PersonAnswer> {
    return new Promise((resolve, reject) => {
      const url = new URL(path, this.#daemon.url);
      const sent = request(url, { method, localAddress: this.address, agent: false, headers });
      sent.on("error", reject).on("response", (response) => {
        const pieces: Buffer[] = [];
        response.on("data", (piece: Buffer) => pieces.push(piece));
        response.on("error", reject).on("end", () => {
          const text = Buffer.concat(pieces).toString();
          const answer = {
            status: response.statusCode ?? 0,
            headers: new Headers(response.headers as Record<string, string>),
            body: text === "" ? null : JSON.parse(text),
          };
          try {
            checkAnswer(method, path, answer);
            resolve(answer);
          } catch (error) {
            reject(error);
          }
        });
      });
      sent.end(body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body));
    });
  }

  register(email: string, more: object = {}) {
    return this.call("POST", "/api/auth/register", { email, password: PASSWORD, name: "Somebody", ...more });
  }

  login(email: string, password = PASSWORD, headers: Record<string, string> = {}) {
    return this.call("POST", "/api/auth/login", { email, password }, headers);
  }

  refresh(refresh_token: string) {
    return this.call("POST", "/api/auth/refresh", { refresh_token });
  }

  /** Status of a read with a credential. */
  async status(token: string, path = "/api/functions"): Promise<number> {
    return (await this.call("GET", path, undefined, bearer(token))).status;
  }
}

export const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
