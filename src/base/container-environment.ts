/** The host name of a container and the environment of its commands: the same for its own command and for every exec. */

/** Search path of commands in containers and instances, unless their environment sets another. */
export const PATH_INSIDE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** Path of a runtime's own files in an instance (RUNTIME_INSIDE of runtimes/runtime.ts). */
export const RUNTIME_INSIDE = "/opt/hearth";
/** Environment of a resident process until it takes its function. */
export const RESIDENT_ENVIRONMENT = [`PATH=${PATH_INSIDE}`, "HOME=/tmp", "LANG=C.UTF-8"];

/** Returns the host name for a container's name: letters, digits and dashes, at most 63 (RFC 1123). */
export function hostnameOf(name: string): string {
  return (
    name
      .replace(/[^a-zA-Z0-9-]+/g, "-")
      .replace(/^-+/, "")
      .slice(0, 63)
      .replace(/-+$/, "") || "container"
  );
}

/** Root's own name and number. */
const ROOT = /^(?:0|root)(?::(?:0|root))?$/;

/** Returns null for root: a container of it is the same as one without a user, also where no /etc/passwd names it. */
export function unlessRoot(user: string | null): string | null {
  return user === null || ROOT.test(user) ? null : user;
}

interface Environments {
  readonly name: string;
  readonly user: string | null;
  /** Null: the container is of a profile. */
  readonly image_environment: Readonly<Record<string, string>> | null;
  readonly environment: Readonly<Record<string, string>>;
}

/** Variables that the GPUs of a running container add to its own. */
interface WithGpus {
  readonly gpus: { readonly environment: Readonly<Record<string, string>> };
}

/** Returns a container with the variables of its GPUs. Null: it does not run. */
export function withGpus<Of extends Pick<Environments, "environment">>(of: Of, live: WithGpus | null): Of {
  return { ...of, environment: { ...of.environment, ...live?.gpus.environment } };
}

/** True if minit looks the home directory up that an environment of the container lacks. */
export const findsHome = ({ user, image_environment }: Omit<Environments, "name" | "environment">): boolean =>
  user !== null || image_environment !== null;

/**
 * Returns `NAME=value` of every variable of a command. `more` goes before the container's own variables, and these before
 * those of its image.
 */
export function containerEnvironment(of: Environments, more: Readonly<Record<string, string>> = {}): string[] {
  const home = findsHome(of) ? {} : { HOME: "/root" };
  const own = { PATH: PATH_INSIDE, ...home, HOSTNAME: hostnameOf(of.name) };
  const all = { ...own, ...of.image_environment, ...of.environment, ...more };
  return Object.entries(all).map(([variable, value]) => `${variable}=${value}`);
}
