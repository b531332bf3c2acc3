/** What ends a command early, and the exit codes, which are the same for every command. */

export const EXIT = {
  success: 0,
  /** The API refused, or the handler failed. */
  refused: 1,
  /** The command line, a file that it names or a profile is not right; nothing was asked of the API. */
  usage: 2,
  unreachable: 3,
  /** 128 + SIGINT, as shells have it. */
  interrupted: 130,
} as const;

/** Of a command whose output nobody reads any more: 128 + SIGPIPE, as shells have it. */
export const EXIT_READER_GONE = 141;

export const EXIT_HELP =
  "Exit codes: 0 success, 1 refused by the API or failed handler, 2 usage error, 3 daemon unreachable, 130 Ctrl-C.";

/** Something that the command line itself has to say. The message is lower case and begins with what it is about. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly exit_code: number;
  /** What to do about it; null where there is nothing to add. */
  readonly hint: string | null;

  constructor(exit_code: number, message: string, hint: string | null = null, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.exit_code = exit_code;
    this.hint = hint;
  }
}

export function usage(message: string, hint: string | null = null): Failure {
  return new Failure(EXIT.usage, message, hint);
}
