/** What a command reads beside its words: files and standard input, whole, as text, within a bound; and a secret. */
import { createReadStream } from "node:fs";
import type { ReadStream } from "node:tty";
import { LIMITS } from "../../base/limits.ts";
import type { Terminal } from "../output/terminal.ts";
import { bytes as bytesText } from "../output/time.ts";
import { EXIT, Failure, usage } from "./failure.ts";

/**
 * The bytes of a file, or of standard input for `-`. Throws a usage failure for what cannot be read, or is too large: `hint` says
 * what to do then.
 */
export async function readBytes(
  file: string,
  bytes_max: number = LIMITS.cli_input_bytes_max,
  hint: string | null = null,
): Promise<Buffer> {
  const name = file === "-" ? "standard input" : file;
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of file === "-" ? process.stdin : createReadStream(file)) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > bytes_max) break;
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw usage(code === "ENOENT" ? `no such file: ${file}` : `cannot read ${name}: ${message}`);
  }
  if (size > bytes_max) throw usage(`${name} is too large (limit ${bytesText(bytes_max)})`, hint);
  return Buffer.concat(chunks);
}

/** The same as text. */
export async function readInput(file: string, hint: string | null = null): Promise<string> {
  const name = file === "-" ? "standard input" : file;
  const bytes = await readBytes(file, LIMITS.cli_input_bytes_max, hint);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw usage(`${name} is not UTF-8 text`, "encode binary data as text, for example with base64");
  }
}

const SEVERAL_LINES = () => usage("several lines were pasted", "give them on standard input, or as a file");

/** What raw mode leaves to us: Enter and Ctrl-D, Ctrl-C, Backspace. */
const ENTER = ["\r", "\n", "\x04"];
const INTERRUPT = "\x03";
const ERASE = ["\b", "\x7f"];

/** Asks on the terminal without showing what is typed; where there is none, standard input is the answer. Trimmed. */
export async function readSecret(prompt: string, terminal: Terminal): Promise<string> {
  return (process.stdin.isTTY ? await readTyped(prompt, terminal) : await readInput("-")).trim();
}

/** The same as it was given: a password may begin or end with a space. `isNew`: on a terminal it is asked for twice. */
export async function readPassword(prompt: string, terminal: Terminal, isNew: boolean): Promise<string> {
  if (!process.stdin.isTTY) return (await readInput("-")).replace(/\r?\n$/, "");
  const password = await readTyped(prompt, terminal);
  if (isNew && (await readTyped(`again, ${prompt}`, terminal)) !== password) throw usage("the two passwords differ");
  return password;
}

/**
 * Asks on the terminal for one line without showing what is typed. Throws a usage failure for several lines that were
 * pasted together: the first one alone would be another value.
 */
export async function readTyped(prompt: string, terminal: Terminal): Promise<string> {
  const { stdin } = process;
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let typed = "";
  const onData = (chunk: Buffer) => {
    const text = chunk.toString("utf8");
    for (const [i, character] of [...text].entries()) {
      if (character === INTERRUPT) return reject(new Failure(EXIT.interrupted, "interrupted"));
      if (ENTER.includes(character)) {
        const rest = [...text].slice(i).filter((other) => !ENTER.includes(other));
        return rest.length === 0 ? resolve(typed) : reject(SEVERAL_LINES());
      }
      typed = ERASE.includes(character) ? typed.slice(0, -1) : typed + character;
    }
  };
  (stdin as ReadStream).setRawMode(true);
  stdin.on("data", onData);
  // Last: who sees it may type, or paste, at once.
  terminal.err(prompt);
  try {
    return await promise;
  } finally {
    stdin.off("data", onData);
    (stdin as ReadStream).setRawMode(false);
    stdin.pause();
    terminal.err("\n");
  }
}
