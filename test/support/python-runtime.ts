/** A resident process for the tests of minit and the engine. */

import type { Instance, OutputStream, Resident, ResidentProgram } from "../../src/engine/ports.ts";

const PROGRAM = `
import socket, struct, sys, threading
wire = socket.socket(fileno=3)
wire.set_inheritable(False)
lock = threading.Lock()
scope = {}
exec(sys.argv[1], scope)
def send(type, id, body):
    with lock: wire.sendall(struct.pack("<IBI", 5 + len(body), type, id) + body)
def read(count):
    got = b""
    while len(got) < count:
        piece = wire.recv(count - len(got))
        if not piece: sys.exit(0)
        got += piece
    return got
def serve(id, payload):
    try:
        result, status = scope["handler"](payload, lambda text: send(0x65, id, b"\\1" + text.encode())), 0
    except Exception as error:
        result, status = repr(error).encode(), 1
    while len(result) > 65536:
        send(0x62, id, result[:65536])
        result = result[65536:]
    send(0x64, id, struct.pack("<I", status) + result)
send(0x60, 0, struct.pack("<I", 1))
requests = {}
while True:
    frame = read(struct.unpack("<I", read(4))[0])
    type, id = struct.unpack_from("<BI", frame)
    if type == 0x61: requests[id] = frame[13:]
    else: requests[id] += frame[5:]
    if type == 0x63 or (type == 0x61 and not frame[5] & 1):
        threading.Thread(target=serve, args=(id, requests.pop(id)), daemon=True).start()
`;

/** Python that defines `handler(payload, log)`, as the resident process of a class. */
export function pythonProgram(handler: string, open_timeout_ms = 20_000): ResidentProgram {
  return { argv: ["python3", "-c", PROGRAM, handler], open_timeout_ms };
}

/** Starts Python that defines `handler(payload, log)` as the resident process of an instance. */
export async function servePython(
  instance: Instance,
  handler: string,
  onLog: (stream: OutputStream, chunk: Buffer) => void = () => {},
): Promise<Resident> {
  const environment = ["PATH=/usr/bin:/bin"];
  const request = { ...pythonProgram(handler), environment, working_directory: "", concurrency: 4 };
  const resident = instance.minit.serve(request, onLog);
  await resident.opened;
  return resident;
}
