/**
 * One daemon per data directory. The lock is an abstract unix socket named after the directory: the kernel takes it
 * back with the process, however that ends, so there is no stale lock to clean up.
 */
import { createServer, type Server } from "node:net";
import { AppError } from "./errors.ts";

/** Takes the lock `name` or throws WRONG_STATE with `message`. Keep the result; closing it gives the lock back. */
export function takeLock(name: string, message: string): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", (cause: NodeJS.ErrnoException) => {
      if (cause.code === "EADDRINUSE") reject(new AppError("WRONG_STATE", message, { cause }));
      else reject(cause);
    });
    server.listen({ path: `\0${name}` }, () => {
      server.unref();
      resolve(server);
    });
  });
}
