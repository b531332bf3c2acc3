/**
 * Decompression that Node has not: bzip2 and xz. Python's modules do it in a container of the build, made for one file: without a
 * network, as a user without rights, within the memory, the disk and the time of the build's commands.
 */
import { AppError } from "../../base/errors.ts";
import type { FileSession } from "../../engine/ports.ts";
import type { Decompressed, ForeignCompression } from "./archives.ts";
import type { CommandEnd } from "./commands.ts";
import { asPath } from "./source-files.ts";
import type { StageRoot } from "./stage-root.ts";
import type { RunStep } from "./stages.ts";

export interface DecompressionOptions {
  /** Makes a root with the files of the image that has Python. */
  readonly make: () => Promise<StageRoot>;
  readonly remove: (root: StageRoot) => Promise<void>;
  readonly run: (root: StageRoot, step: RunStep) => Promise<CommandEnd>;
}

const SOURCE = "in";
const TARGET = "out";
/** The user `nobody` of Debian. */
const NOBODY = 65_534;
const NO_TAR = 3;
const REASONS: Readonly<Record<number, string>> = {
  4: "corrupt or truncated data, or data behind their end",
  5: "they need more memory than the build has",
  6: "what is in them does not fit on the disk of the build",
};
/** Streams may follow one another, with zeros between. Nothing of a file is unpacked whose first block is none of a tar. */
const PROGRAM = `
import bz2, lzma, sys
SIZE = 1 << 18

def new():
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 30) if sys.argv[1] == "xz" else bz2.BZ2Decompressor()

def pieces(source):
    reader = new()
    while True:
        data = b""
        if reader.eof:
            data = reader.unused_data.lstrip(b"\\0")
            while not data:
                data = source.read(SIZE)
                if not data:
                    return
                data = data.lstrip(b"\\0")
            reader = new()
        elif reader.needs_input:
            data = source.read(SIZE)
            if not data:
                raise EOFError
        yield reader.decompress(data, SIZE)

def is_tar(block):
    try:
        noted = int(block[148:156].split(b"\\0")[0].strip(), 8)
    except ValueError:
        return False
    return noted == sum(block[:148]) + 256 + sum(block[156:512])

head = b""
try:
    with open("/in", "rb") as source, open("/out", "wb") as target:
        for piece in pieces(source):
            if head is not None:
                head += piece
                if len(head) < 512:
                    continue
                if not is_tar(head):
                    sys.exit(3)
                piece, head = head, None
            target.write(piece)
except MemoryError:
    sys.exit(5)
except lzma.LZMAError as error:
    sys.exit(5 if "limit" in str(error) else 4 if head is None else 3)
except (EOFError, ValueError):
    sys.exit(4 if head is None else 3)
except OSError as error:
    sys.exit(6 if error.errno is not None else 4 if head is None else 3)
sys.exit(0 if head is None else 3)
`;

/** Decompresses a file of a session. Null: there is no tar in it. Throws INVALID_ARGUMENT, and what a container throws. */
export async function decompressed(
  { make, remove, run }: DecompressionOptions,
  from: FileSession,
  path: string,
  compression: ForeignCompression,
): Promise<Decompressed | null> {
  const root = await make();
  const close = () => remove(root);
  try {
    const session = await root.files();
    await session.write(SOURCE, (await from.read(asPath(path))).stream, { mode: 0o444 });
    await session.write(TARGET, new Uint8Array(), { mode: 0o600, uid: NOBODY, gid: NOBODY });
    root.closeFiles();
    const { exit_code, why } = await run(root, stepOf(compression));
    if (exit_code === NO_TAR) {
      await close();
      return null;
    }
    if (exit_code !== 0) {
      const reason = REASONS[exit_code] ?? (why === "" ? `the program ended with ${exit_code}` : why);
      throw new AppError("INVALID_ARGUMENT", `ADD cannot unpack ${compression} data: ${reason}`);
    }
    const { stream } = await (await root.files()).read(TARGET);
    return { stream, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function stepOf(compression: ForeignCompression): RunStep {
  return {
    type: "run",
    argv: ["/usr/bin/python3", "-I", "-S", "-c", PROGRAM, compression],
    script: null,
    environment: {},
    user: `${NOBODY}:${NOBODY}`,
    working_directory: "/",
    mounts: [],
    secrets: [],
    has_network: false,
  };
}
