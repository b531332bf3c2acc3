/**
 * The API's hints in the words of the command line. A hint names a route or a field of the API; someone who types a command
 * needs the command or the flag. The daemon does not know which client asks, so the one table for it is here.
 */

/** Routes, and the commands that request them. */
const ROUTES: readonly (readonly [RegExp, string])[] = [
  [/POST \/api\/containers\/([^\s,/]+)\/start/g, "hearth start $1"],
  [/GET \/api\/containers\/([^\s,/]+)\/ready/g, "hearth inspect $1"],
  [/GET \/api\/functions\/([^\s,/]+)\/versions/g, "hearth versions $1"],
  [/PUT \/api\/functions\/([^\s,/]+)/g, "hearth update $1"],
  [/POST \/api\/operator\/key\/rotate/g, "hearth keys rotate-operator"],
  [/GET \/api\/tenant\b/g, "hearth limits"],
  [/POST \/api\/volumes(?!\/)/g, "hearth volumes create"],
  [/POST \/api\/oci\/images\/pull/g, "hearth pull"],
  [/POST \/api\/oci\/images\/prune/g, "hearth prune"],
  [/POST \/api\/build-contexts/g, "hearth build"],
  [/GET \/api\/nightly\/profiles\/([^\s,/]+)\/releases/g, "hearth profiles show $1"],
  [/GET \/api\/nightly\/profiles\/([^\s,/]+)/g, "hearth profiles show $1"],
  [/GET \/api\/nightly\/profiles(?!\/)/g, "hearth profiles list"],
  [/POST \/api\/nightly\/profiles\/([^\s,/]+)\/build/g, "hearth profiles build $1"],
  [/POST \/api\/icc\/dlq\/([^\s,/]+)\/replay/g, "hearth icc dlq replay $1"],
  [/GET \/api\/icc\/dlq(?!\/)/g, "hearth icc dlq"],
  [/GET \/api\/icc\/streams/g, "hearth icc streams"],
  [/GET \/api\/icc\/inbox\/([^\s,/]+)/g, "hearth icc inbox $1"],
  [/POST \/api\/icc\/inbox\/([^\s,/]+)\/receive/g, "hearth icc receive $1"],
  [/PUT \/api\/icc\/containers\/([^\s,/]+)\/permission/g, "hearth icc permission $1"],
  // Its routes are those of its own version.
  [
    /choose a route of GET \/api\/openapi\.json; \/api\/docs shows them with examples/g,
    "use the command line that came with the daemon",
  ],
];

/** Fields, and the flags that set them. */
const FIELDS: readonly (readonly [RegExp, string])[] = [
  [/\boci: true/g, "--oci"],
  [/\bsend oci: false/g, "leave out --oci"],
  [/\bgpu_count\b/g, "--gpus"],
  [/\bmemory_limit_mb\b/g, "--memory"],
  [/\bhost_port\b/g, "host port with -p"],
  [/\bworking_directory\b/g, "--workdir"],
  [/\bstop_signal\b/g, "--stop-signal"],
  [/\bentrypoint\b/g, "--entrypoint"],
  [/\bhealth\.command\b/g, "--health-cmd"],
  [/\bsend user\b/g, "give --user"],
  [/\boverlap_seconds\b/g, "--overlap"],
  [/\btenant_id\b/g, "--tenant"],
  [/\bforce=true/g, "--force"],
  [/\benable_websockets: true/g, "--websockets"],
  [/\bservice_hostnames\b/g, "--service-hostname"],
  [/\bname one of them as container_id\b/g, "give one of them as --inbox"],
  [/\bidempotency_key\b/g, "--idempotency-key"],
  [/\breplay_to_container\b/g, "--to"],
];

const replaced = (text: string, table: typeof ROUTES) =>
  table.reduce((before, [term, own]) => before.replace(term, own), text);

export function commandLineHint(hint: string): string {
  const commands = replaced(hint, ROUTES);
  const flags = replaced(commands, FIELDS);
  // A field is sent, a flag is given.
  return flags === commands ? commands : flags.replace(/\bsend\b/g, "give");
}

/** Each command and flag that the tables name, for the test that compares them with the tree of commands. */
export const HINT_WORDS: readonly string[] = [...ROUTES, ...FIELDS].map(([, own]) => own);
