/**
 * The limits that a client or an operator meets, each with one sentence, in groups. Values are those of LIMITS. `hearth help
 * limits`, the page of the API and the guides of the concerns are made from this table.
 */
import { LIMITS } from "./limits.ts";
import { TENANT_LIMITS } from "./tenant-limits.ts";

const LIMIT_GROUPS = {
  Requests: {
    body_bytes_max: "Size of a request's body, an invocation's payload included.",
    base64_body_bytes_max: "Size of a body that carries a file or an archive in base64.",
    json_values_max:
      "Values in a JSON body, and in a result; send a larger payload as a string. A command of the runtime custom may answer more: it is a JSON string then.",
    json_depth_max:
      "Levels of objects and arrays in a JSON body, and in a result. A command of the runtime custom may answer more: it is a JSON string then.",
    header_bytes_max: "Size of a request's headers.",
    headers_timeout_ms: "Time in which a client sends the headers of a request.",
    request_timeout_ms: "Time in which a client sends a whole request.",
    connection_idle_ms: "Time after which the daemon closes a connection without requests.",
    answer_stall_ms: "Time after which the daemon disconnects a client that reads nothing of its answer.",
    upload_stall_ms: "Time in which the next bytes of an upload must arrive, otherwise 408.",
    spool_bytes_min: "Bytes that a base64 upload above 256 KiB must deliver in each such time, otherwise 408.",
    body_small_chunks_max:
      "Chunks of a body after which they must have 16 bytes on average; below 256 bytes the daemon reads slower.",
    held_bytes_max:
      "Size of all bodies and answers in memory of one listener, half of it for one tenant; above it 503.",
    pipelined_requests_max: "Requests on one connection ahead of their answers.",
    connections_max:
      "Open connections; a new one displaces the oldest without an authenticated request, then the oldest idle one.",
    inner_connections_max: "Connections from handlers of all tenants, during calls with api_access.",
    inner_per_tenant_connections_max: "Connections from handlers of one tenant.",
    inner_per_address_connections_max: "Connections from one instance.",
    list_limit_max: "Entries of one page of a list, which is also the default of limit.",
    list_bytes_max: "Size of the records in one page of a list.",
    retry_after_seconds_max: "Largest Retry-After.",
    idempotency_key_length_max: "Length of an Idempotency-Key.",
    idempotency_kept_seconds: "Time for which the daemon keeps answers of Idempotency-Keys.",
    idempotency_keys_per_tenant_max: "Kept answers of Idempotency-Keys of a tenant, the newest ones.",
    idempotency_bytes_per_tenant_max: "Size of the kept answers of Idempotency-Keys of a tenant.",
  },
  "Tenants and keys": {
    tenant_name_length_max: "Length of a tenant's name.",
    api_keys_per_tenant_max: "API keys of a tenant.",
    access_token_seconds_default: "Default lifetime of an access token.",
    access_token_seconds_max: "Longest lifetime of an access token.",
    key_containers_max: "Containers of one key.",
    keys_per_container_max: "Keys of one container.",
    email_length_max: "Length of an e-mail address.",
    user_name_length_max: "Length of a user's name.",
    password_length_min: "Shortest new password, in characters.",
    password_bytes_max: "Longest password, in bytes.",
    refresh_token_seconds: "Lifetime of a refresh token.",
    logins_per_user_max: "Logins of a user; a further one ends the oldest.",
    public_body_bytes_max: "Size of the body of a request that needs no credential.",
    operator_key_overlap_seconds_max: "Longest time for which a rotated operator's key stays valid.",
    secret_bytes_max: "Size of a secret's value.",
    secret_name_length_max: "Length of a secret's name.",
    secrets_keys_max: "Keys of secrets in the key file during rotations.",
    audit_changes_kept_per_tenant: "Changes of a tenant in the audit log.",
    audit_refusals_kept_per_tenant: "Refusals of a tenant in the audit log.",
    audit_kept_seconds: "Time for which the daemon keeps audit entries.",
  },
  Functions: {
    name_length_max: "Length of a name.",
    description_length_max: "Length of a description.",
    handler_bytes_max: "Size of a handler.",
    path_bytes_max: "Length of a working_directory or another path.",
    environment_entries_max: "Variables of one environment.",
    environment_bytes_max: "Size of the names and values of one environment.",
    memory_limit_mb_default: "Default memory_limit_mb of a function.",
    memory_limit_mb_min: "Smallest memory_limit_mb of a function or container.",
    memory_limit_mb_max: "Largest memory_limit_mb of a function or container.",
    cpu_limit_percent_min: "Smallest cpu_limit_percent, of one core; without the field there is no quota.",
    cpu_limit_percent_max: "Largest cpu_limit_percent, of one core.",
    timeout_seconds_default: "Default timeout_seconds of a call; a call waits in the queue at most as long.",
    timeout_seconds_min: "Smallest timeout_seconds.",
    timeout_seconds_max: "Largest timeout_seconds.",
    max_instances_default: "Default max_instances.",
    max_instances_max: "Largest max_instances.",
    concurrency_limit_max:
      "Largest concurrency_limit of queued and running calls; without the field there is no limit.",
    queue_per_function_max: "Queued calls of a function (setting HEARTH_QUEUE_MAX).",
    chain_depth_max: "Levels of calls inside calls.",
    versions_kept_max: "Kept versions of a function; a rollback reaches no further back.",
    invocations_kept_per_function: "Kept records of a function (setting HEARTH_RECORDS_KEPT).",
    invocations_kept_seconds: "Time for which the daemon keeps records (setting HEARTH_RECORDS_KEPT_DAYS).",
    output_bytes_max: "Kept standard output, and kept standard error, of a call or exec.",
    payload_variable_bytes_max: "Size up to which HEARTH_PAYLOAD contains the payload.",
    custom_head_bytes_max: "Size of the head of an HTTP message of a command of the runtime custom.",
    custom_connections_max:
      "Connections of the Lambda Runtime API to one instance; a new one closes the one idle longest.",
    custom_error_bytes_max: "Kept bytes of a body with another status than 2xx of a command of the runtime custom.",
    call_path_bytes_max: "Size of the path of a call of the runtime custom, with its query.",
    call_headers_max: "Headers of a call of the runtime custom.",
    call_header_name_bytes_max: "Length of the name of a header of a call.",
    call_headers_bytes_max: "Size of the names and values of the headers of a call.",
    code_archive_bytes_max: "Size of a function's code as an archive.",
    code_bytes_max: "Size of the unpacked files of a function's code.",
    code_entries_max: "Entries of an archive of code.",
    code_uploads_per_tenant_max: "Concurrent uploads of code of one tenant.",
    code_uploads_max: "Concurrent uploads of code on this node.",
    code_unused_seconds: "Time for which the daemon keeps uploaded code that no version uses.",
    load_timeout_ms: "Time in which a handler of code must load.",
    result_bytes_max: "Size of a handler's result as JSON.",
    resident_calls_max: "Largest instance_concurrency.",
    instance_calls_max: "Largest instance_calls_max.",
    function_gpus_max: "Largest gpu_count of a function.",
    function_secrets_max: "Secrets that a function has as files.",
    secret_files_bytes_max: "Size of all secrets that a function has as files.",
    version_note_length_max: "Length of a version's note.",
    deployment_functions_max: "Functions of one deployment.",
    diff_files_max: "Files that the difference of two versions names.",
    error_message_length_max: "Length of error_message in a record; a longer one is truncated.",
    error_output_length_max: "End of a handler's standard output and error in details.output of HANDLER_FAILED.",
    deploy_wait_ms: "Time for which PUT and deploy wait for warm instances.",
    group_close_wait_ms: "Time in which running calls may finish before a deletion kills them.",
  },
  Instances: {
    instances_max: "Instances and cells on this node (setting HEARTH_INSTANCES_MAX).",
    instance_pids_max: "Processes and threads of an instance.",
    instance_files_max: "Open files of one process of an instance.",
    tmpfs_mb: "Size of /tmp and of /dev/shm, charged to the memory limit.",
    keep_alive_ms_default: "Time for which an idle instance stays until the function's arrival pattern is known.",
    keep_alive_ms_min: "Shortest time for which an idle instance stays; min_instances stay longer.",
    keep_alive_ms_max: "Longest time for which an idle instance stays.",
    retired_keep_alive_ms: "Time for which idle instances of a superseded version stay for a rollback.",
  },
  Images: {
    image_reference_length_max: "Length of a reference of an image.",
    image_pulls_max: "Concurrent pulls of images on this node; further ones wait.",
    image_pulls_per_tenant_max: "Concurrent pulls of images of a tenant; further ones wait.",
    image_pull_ms: "Deadline of a pull.",
    image_pushes_max: "Concurrent pushes of images on this node.",
    image_pushes_per_tenant_max: "Concurrent pushes of images of a tenant.",
    image_push_ms: "Time in which a push of an image ends.",
    image_saves_max: "Concurrent archives of images that clients read from this node.",
    image_saves_per_tenant_max: "Concurrent archives of images of a tenant.",
    image_save_ms: "Time in which a client reads an archive of an image.",
    profile_build_ms: "Deadline of a build of a profile.",
    profile_wait_ms:
      "Longest time for which a request waits for a first build of a profile: as long as several builds in turn may take.",
    profile_waiters_per_tenant_max: "Requests of a tenant that wait for builds of profiles.",
    profile_waiters_max: "Requests of all tenants that wait for builds of profiles.",
    profile_backoff_ms:
      "Time after a failed build of a profile before its next use starts another one; it doubles with each failure.",
    profile_backoff_ms_max: "Longest such time.",
    profile_updates_kept_seconds: "Time for which an answer of the apt sources about newer packages counts.",
    registry_silence_ms: "Time after which a pull from a registry that sends nothing, or next to nothing, is retried.",
    manifest_bytes_max: "Size of a manifest.",
    registry_config_bytes_max: "Size of the configuration of an image that is pulled.",
    image_layers_max: "Layers of an image.",
    image_archive_bytes_max: "Size of an archive of an image that is loaded.",
    image_loads_max: "Concurrent loads of images on this node.",
    image_loads_per_tenant_max: "Concurrent loads of images of a tenant.",
    image_bytes_max: "Size of the compressed layers of an image.",
    layer_entries_max: "Files and directories of one layer.",
    image_details_bytes_max: "Size of the environment, labels and other settings of an image.",
    context_archive_bytes_max: "Size of a build context as sent.",
    context_bytes_max: "Size of the unpacked files of a build context.",
    context_entries_max: "Files and directories of a build context.",
    context_seconds: "Time after which a build context expires.",
    context_uploads_per_tenant_max: "Concurrent uploads of build contexts of a tenant.",
    build_file_bytes_max: "Size of a build file.",
    build_instructions_max: "Instructions of a build file.",
    build_stages_max: "Stages of a build file.",
    build_ms: "Deadline of a build.",
    builds_max: "Concurrent builds on this node at most: HEARTH_BUILDS sets fewer; further ones wait.",
    builds_per_tenant_max: "Concurrent builds of a tenant; further ones wait.",
    build_memory_mb: "Memory of a command of a build, unless the tenant's limit is lower.",
    build_disk_mb: "Size of the files that all stages of a build change, unless the tenant's limit is lower.",
    build_files_max: "Files of the sources of one COPY.",
    build_log_bytes_max: "Size of the log of a build; above it only steps are logged.",
    build_layer_bytes_max: "Size of the layer that a build adds.",
    build_cache_mb_per_tenant_max:
      "Size of the kept steps and cache mounts of a tenant; the least recently used ones go first.",
    build_cache_entries_per_tenant_max: "Number of the kept steps and cache mounts of a tenant.",
    build_cache_mount_mb: "Size of one cache mount.",
  },
  Containers: {
    containers_max: "API containers on this node (setting HEARTH_CONTAINERS_MAX).",
    memory_overcommit_default:
      "Memory of all running containers, as a multiple of the machine's (setting HEARTH_MEMORY_OVERCOMMIT).",
    container_memory_mb_default: "Default memory_limit_mb of a container.",
    disk_limit_mb_default: "Default disk_limit_mb and quota_mb (setting HEARTH_DISK_LIMIT_MB).",
    disk_limit_mb_min: "Smallest disk_limit_mb and quota_mb.",
    disk_limit_mb_max: "Largest disk_limit_mb and quota_mb.",
    container_pids_max: "Processes and threads of a container.",
    container_files_max: "Open files of one process of a container.",
    container_terminals_max: "Terminals of a container.",
    container_volumes_max: "Volumes of a container.",
    container_ports_max: "Published ports of a container.",
    host_port_first: "First port that a container may publish (setting HEARTH_HOST_PORTS).",
    host_port_last: "Last port that a container may publish (setting HEARTH_HOST_PORTS).",
    host_port_min: "First port that a container of the operator's tenant may publish.",
    egress_rules_max: "Rules in egress.",
    network_members_max: "Containers of a private network, stopped ones included.",
    dns_label_length_max: "Length of a private network's name, and of the name of a container with network or dns.",
    dns_container_packets_per_second: "Name queries of a container, and packets of them; more are dropped.",
    dns_tenant_packets_per_second: "The same of all containers of a tenant.",
    labels_max: "Labels of a container.",
    argument_bytes_max: "Size of one argument of a command.",
    arguments_bytes_max: "Size of all arguments of a command.",
    batch_items_max: "Containers of one batch.",
    forks_max: "Forks of one request.",
    schedule_seconds_min: "Shortest time between snapshots of a schedule.",
    schedule_keep_max: "Snapshots that a schedule keeps.",
    snapshot_hook_ms: "Deadline of each hook of an app-consistent snapshot.",
    freeze_ms_max: "Time within which a container freezes for a snapshot, or is copied without.",
    lineage_nodes_max: "Snapshots of one lineage answer.",
    exec_timeout_ms_default: "Default timeout_ms of an exec or stream; with detach there is no deadline.",
    exec_timeout_ms_max: "Largest timeout_ms.",
    execs_per_container_max: "Concurrent commands, streams and terminals of one container.",
    execs_max: "Concurrent commands, streams and terminals on this node.",
    jobs_per_container_max: "Kept records of commands of a container.",
    log_lines_max: "Lines in one answer of a log.",
    stop_grace_ms_default: "Default time between the stop signal and SIGKILL of a stop.",
    health_interval_seconds_default: "Default time between health checks of a container.",
    health_timeout_seconds_default: "Default timeout of a health check.",
    health_retries_default: "Default number of failed health checks in a row after which a container is unhealthy.",
    health_checks_per_tenant_max: "Health checks of one tenant that run at the same time; later ones wait.",
    image_config_bytes_max: "Size of an image's configuration as JSON.",
    restart_backoff_ms_max: "Longest pause before a restart policy starts a container again.",
  },
  "Published services": {
    services_max: "Published services on this node.",
    service_requests_max: "Requests and WebSockets to published services in progress.",
    service_requests_per_tenant_max: "Those of one tenant.",
    service_connections_max: "Connections of clients to published services.",
    service_connections_per_tenant_max: "Those of one tenant; above it the daemon closes each after its response.",
    service_connect_ms: "Time in which a container accepts a connection.",
    service_response_ms: "Time from the end of a request to the headers of the response.",
    service_idle_ms: "Time without a byte after which a request, response or WebSocket ends.",
    service_header_bytes_max: "Size of the headers of a response.",
    service_wrong_tokens_max: "Wrong tokens of one source in a minute that are answered 401, later ones 429.",
    service_expired_kept_seconds: "Time for which an expired service stays readable.",
  },
  "Messages between containers": {
    icc_message_bytes_max: "Size of an encoded envelope, payload included.",
    icc_envelope_fields_max: "Fields of an envelope, entries of lists and maps included.",
    icc_list_entries_max: "Entries of a list or map in a message in JSON.",
    icc_id_bytes_max: "Size of each identifier, address and key of an envelope.",
    icc_clock_skew_ms: "Time by which sent_at may be ahead of the daemon's clock.",
    icc_message_kept_ms: "Time for which the daemon keeps a message at most.",
    inbox_unread_max: "Unread messages of an inbox.",
    inbox_leases_max: "Messages of an inbox that receivers hold at the same time.",
    idempotency_key_kept_ms: "Time for which an inbox keeps an idempotency_key.",
    lease_default_ms: "Time for which a receiver holds a message, by default.",
    lease_max_ms: "Longest time for which a receiver holds a message.",
    max_deliver_default: "Deliveries without an ack until a message is a dead letter, by default.",
    entries_read_max: "Messages in one answer.",
    broadcast_targets_max: "Targets of one broadcast.",
    broadcast_copies_at_once: "Copies of one broadcast that the daemon writes at the same time.",
    broadcast_bytes_at_once: "Bytes of those copies; one larger copy is written alone.",
    broadcast_output_bytes_max: "Output of all commands of one broadcast in its answer.",
    message_wait_ms_max: "Longest wait of a receive or a request.",
    message_waits_per_tenant_max: "Receives and requests of a tenant that wait at the same time.",
    message_waits_always_max: "Receives and requests of a tenant that may wait even if the node's limit is reached.",
    tenant_inboxes_max: "Inboxes of a tenant, queues and topics included.",
    topic_subscribers_max: "Subscribers of one topic.",
    message_copies_bytes_max: "Bytes of all copies of one message.",
    tenant_bindings_max: "Function bindings of a tenant.",
    binding_concurrency_max: "Calls of one function binding at the same time.",
    tenant_binding_calls_max: "Calls of all function bindings of a tenant at the same time.",
    binding_calls_max: "Calls of all function bindings of this node at the same time.",
    binding_max_deliver_max: "Highest max_deliver of a function binding.",
    binding_backoff_ms_max: "Longest pause between two calls for the same message.",
    actions_per_tenant_at_once: "Containers of a tenant to which the daemon applies an action at the same time.",
    actions_at_once: "Containers of this node to which the daemon applies an action at the same time.",
    action_attempts_max: "Attempts at an action that has no outcome.",
    action_error_bytes_max: "Bytes of the text in the outcome of an action.",
    state_keys_max: "States of a tenant.",
    state_value_bytes_max: "Bytes of one state.",
    state_bytes_max: "Bytes of all states of a tenant, with their keys, media types and senders.",
    state_page_max: "States in one answer.",
    state_watch_changes_max: "Changed keys that a slow watcher of states may have before its stream ends.",
  },
  "Terminals and files": {
    terminal_sessions_max: "Terminal sessions on this node.",
    terminal_idle_seconds_default:
      "Time for which a session without a client stays (setting HEARTH_TERMINAL_IDLE_SECONDS).",
    terminal_ttl_seconds_default: "Longest lifetime of a session (setting HEARTH_TERMINAL_TTL_SECONDS).",
    terminal_backlog_bytes: "Kept output of a session without a client.",
    file_page_size_default: "Default entries of one page of ls.",
    file_page_size_max: "Entries of one page of ls.",
    file_sessions_per_tenant_max: "Concurrent file transfers of one tenant.",
    file_session_ms_max: "Time of one file transfer, in milliseconds; Range continues a download.",
    file_sessions_max: "Concurrent file transfers on this node.",
    upload_bytes_max: "Size of an archive as sent.",
    archive_bytes_max: "Size of an unpacked archive.",
    archive_entries_max: "Entries of an archive.",
    archive_depth_max: "Levels of folders in an archive.",
  },
  "Operations and events": {
    operations_open_per_tenant_max: "Open operations of a tenant.",
    operations_running_per_tenant_max: "Running operations of a tenant.",
    operations_running_max: "Running operations on this node.",
    operations_kept_per_tenant: "Kept operations of a tenant.",
    operations_kept_seconds: "Time for which the daemon keeps ended operations.",
    operation_wait_seconds_max: "Largest wait_seconds.",
    events_kept_per_tenant: "Kept events of a tenant.",
    events_kept_seconds: "Time for which the daemon keeps events.",
    event_streams_per_tenant_max: "Open event streams of a tenant.",
    event_streams_max: "Open event streams on this node.",
    exec_events_per_window_max: "Execs of a tenant a minute that emit events.",
  },
  Node: {
    store_reserve_bytes:
      "Disk reserved for changes of state and deletions; on a full disk calls are refused first, with 503.",
    drain_ms: "Time in which running calls may finish after SIGTERM.",
  },
} as const satisfies Record<string, { readonly [Name in keyof typeof LIMITS]?: string }>;

type KeysOf<Group> = Group extends unknown ? keyof Group : never;
/** The name of a limit that has a sentence. */
export type DocumentedLimit = KeysOf<(typeof LIMIT_GROUPS)[keyof typeof LIMIT_GROUPS]> & keyof typeof LIMITS;

const TEXTS = Object.assign({}, ...Object.values(LIMIT_GROUPS)) as Readonly<Record<DocumentedLimit, string>>;

/** A limit as lists and guides show it. */
export interface LimitRow {
  readonly name: DocumentedLimit;
  readonly value: number;
  /** The value with its unit. */
  readonly shown: string;
  readonly about: string;
}

const UNITS: readonly (readonly [RegExp, (value: number) => string])[] = [
  [/_bytes(_|$)/, (value) => scaled(value, 1024, ["bytes", "KiB", "MiB", "GiB"])],
  [/_mb(_|$)/, (value) => scaled(value, 1024, ["MiB", "GiB", "TiB"])],
  [/_ms(_|$)/, (value) => (value < 1_000 ? `${value} ms` : duration(value / 1_000))],
  [/_seconds(_|$)/, duration],
  [/_percent(_|$)/, (value) => `${grouped(value)} %`],
  [/_length_max$/, (value) => `${grouped(value)} characters`],
  [/^host_port_/, String],
  [/_overcommit_/, (value) => `${value} times`],
];

const grouped = (value: number): string => value.toLocaleString("en-US");

/** Returns the value in the largest unit of which it is a whole multiple. */
function scaled(value: number, factor: number, [unit = "", ...larger]: readonly string[]): string {
  if (larger.length === 0 || value === 0 || value % factor !== 0) return `${grouped(value)} ${unit}`;
  return scaled(value / factor, factor, larger);
}

function duration(seconds: number): string {
  const [size, unit] = (
    [
      [86_400, "d"],
      [3_600, "h"],
      [60, "min"],
    ] as const
  ).find(([one]) => seconds > one && seconds % one === 0) ?? [1, "s"];
  return `${grouped(seconds / size)} ${unit}`;
}

/** Returns the row of each name. */
export function limitRows(names: readonly DocumentedLimit[]): LimitRow[] {
  return names.map((name) => {
    const value = LIMITS[name];
    const [, show] = UNITS.find(([pattern]) => pattern.test(name)) ?? [null, grouped];
    return { name, value, shown: show(value), about: TEXTS[name] };
  });
}

/** Returns the groups with their titles and rows. */
export function limitGroups(): { readonly title: string; readonly rows: readonly LimitRow[] }[] {
  return Object.entries(LIMIT_GROUPS).map(([title, group]) => ({
    title,
    rows: limitRows(Object.keys(group) as DocumentedLimit[]),
  }));
}

/** A limit of a tenant as lists show it. */
export interface TenantLimitText {
  readonly name: string;
  readonly about: string;
  readonly default_text: string;
  /** The consequence of reaching it. */
  readonly above: string;
}

export function tenantLimitRows(): TenantLimitText[] {
  return Object.entries(TENANT_LIMITS).map(([name, row]) => ({ name, ...row }));
}

/** Returns limits of the daemon and of tenants as text for a terminal. */
export function limitsText(): string {
  const groups = limitGroups().map(
    ({ title, rows }) =>
      `${title}\n${rows.map(({ name, shown, about }) => `  ${name.padEnd(36)} ${shown.padEnd(16)} ${about}`).join("\n")}\n`,
  );
  const tenants = tenantLimitRows().map(
    ({ name, about, default_text, above }) =>
      `  ${name}\n    ${about}\n    default: ${default_text}; above it: ${above}`,
  );
  return `Limits of the daemon. 'GET /api/system/info' has all of them by name.

${groups.join("\n")}
Limits of a tenant. The operator sets them with 'hearth tenants update'; 'hearth limits' shows yours and their usage.
${tenants.join("\n")}
`;
}
