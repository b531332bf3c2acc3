/** The verbs of images: pulled, listed, shown, tagged, shared, deleted. */
import { setTimeout as pause } from "node:timers/promises";
import { LIMITS } from "../../base/limits.ts";
import { counted } from "../../base/plurals.ts";
import type { RequestOf, ResponseOf } from "../../client/client.ts";
import { accepted, succeeded } from "../daemon/operations.ts";
import { each } from "../each.ts";
import { entriesOf } from "../output/fields.ts";
import type { Column } from "../output/table.ts";
import { visible } from "../output/text.ts";
import { bytes, relative } from "../output/time.ts";
import { EXIT } from "../session/failure.ts";
import { percentText } from "../session/meter.ts";
import { readList } from "../session/pages.ts";
import type { Flags, Session, Words } from "../session/session.ts";
import { credentialsOf, LOGIN_ADVICE } from "./registries.ts";

type Image = ResponseOf<"GET /api/oci/images">["images"][number];
type Step = ResponseOf<"GET /api/oci/images/history">["history"][number];
type Layer = ResponseOf<"GET /api/oci/images/inspect">["layers"][number];

/** Hexadecimal digits of an id that a table shows. */
const SHORT_ID_LENGTH = 12;

export const shortId = (id: string): string => id.slice("sha256:".length).slice(0, SHORT_ID_LENGTH);

/** `docker.io/library/alpine` as people write it. */
const shortName = ({ registry, repository }: Image): string =>
  registry === "docker.io" ? repository.replace(/^library\//, "") : `${registry}/${repository}`;

export async function listImages(session: Session, [filter]: Words, flags: Flags): Promise<void> {
  const limit = flags.limit as number | undefined;
  const client = session.client();
  const asked = { filter, include_digests: flags.digests === true ? ("true" as const) : undefined };
  const answer = await readList("images", limit, (page) =>
    client.request("GET /api/oci/images", { query: { ...asked, ...page } }),
  );
  if (flags.quiet === true && session.flags.json !== true) {
    // Once, however many references it has.
    const ids = new Set(answer.images.map(({ id }) => id));
    return session.terminal.out([...ids].map((id) => `${id}\n`).join(""));
  }
  const columns: Column<Image>[] = [
    { title: "REPOSITORY", value: shortName },
    { title: "TAG", value: ({ tag }) => tag },
    ...(flags.digests === true ? [{ title: "DIGEST", value: ({ manifest_digest }: Image) => manifest_digest }] : []),
    { title: "ID", value: ({ id }) => shortId(id), format: () => "dim" },
    { title: "SIZE", value: ({ size_bytes }) => bytes(size_bytes), side: "right" },
    { title: "PULLED", value: ({ pulled_at }) => relative(pulled_at, session.now) },
    { title: "USES", value: ({ ref_count }) => String(ref_count), side: "right" },
    { title: "SHARED", value: ({ is_shared }) => (is_shared ? "yes" : null), isSpare: true },
  ];
  const empty =
    filter === undefined
      ? "no images yet: hearth pull <reference>"
      : `no image whose reference contains '${visible(filter)}': hearth images lists all`;
  session.show(answer, () => session.table(columns, answer.images, empty));
  session.noteCut(answer.images.length, limit, answer);
}

export async function pullImage(session: Session, [reference = ""]: Words, flags: Flags): Promise<void> {
  session.advice = LOGIN_ADVICE;
  const image = await pulledImage(session, {
    reference,
    force: flags.force === true ? true : undefined,
    platform: flags.platform as string | undefined,
    ...(await credentialsOf(session, flags)),
  });
  session.show({ success: true, image, error_message: null }, () => {
    return `${visible(image.reference)} is pulled: ${shortId(image.id)}, ${bytes(image.size_bytes)}\n`;
  });
}

/** Pulls an image with a bar. Ctrl-C cancels the pull. */
export async function pulledImage(
  session: Session,
  body: RequestOf<"POST /api/oci/images/pull">["body"],
): Promise<Image> {
  const { reference } = body;
  const query = { execution: "async" as const };
  const operation_id = accepted(await session.client().request("POST /api/oci/images/pull", { query, body }));
  await watched(session, operation_id, `pulling ${visible(reference)}`);
  const done = await succeeded(session, operation_id, `pulling ${reference}`);
  const pulled = String(done.result?.reference ?? reference);
  return (await session.client().request("GET /api/oci/images/inspect", { query: { reference: pulled } })).image;
}

/** Shows a bar until the operation has ended. Ctrl-C cancels it. */
export async function watched(session: Session, operation_id: string, doing: string): Promise<void> {
  const params = { operation_id };
  const meter = session.terminal.meter();
  session.interrupt_exit_code = null;
  const onInterrupt = (): void => {
    const leave = (): never => process.exit(EXIT.interrupted);
    session.client().request("POST /api/operations/:operation_id/cancel", { params }).then(leave, leave);
  };
  process.once("SIGINT", onInterrupt);
  try {
    for (;;) {
      const { completed_at, progress_pct, message } = await session
        .client()
        .request("GET /api/operations/:operation_id", { params });
      if (completed_at !== null) return;
      const bar = progress_pct === null ? "" : `  ${percentText(progress_pct)}`;
      meter.show(`${doing}${bar}${message === null ? "" : `  ${visible(message)}`}`);
      await pause(LIMITS.cli_pull_poll_ms);
    }
  } finally {
    meter.end();
    process.off("SIGINT", onInterrupt);
    session.interrupt_exit_code = EXIT.interrupted;
  }
}

export async function deleteImages(session: Session, words: Words, flags: Flags): Promise<void> {
  session.advice = { IN_USE: "to list all containers: hearth ps -a; to remove one: hearth rm" };
  const prune_layers = flags.prune === false ? ("false" as const) : undefined;
  await each(session, words, async (reference) => {
    const query = { reference, prune_layers };
    const answer = await session.client().request("DELETE /api/oci/images", { query });
    session.show(answer, () => `${visible(answer.reference)} is deleted\n`);
  });
}

export async function pruneImages(session: Session, _: Words, flags: Flags): Promise<void> {
  const older_than_seconds = flags.olderThan as number | undefined;
  const build_cache = flags.buildCache === true;
  const body = { older_than_seconds, build_cache };
  const answer = await session.client().request("POST /api/oci/images/prune", { body });
  session.show(answer, () => {
    const lines = answer.images.map(({ reference }) => `${visible(reference)} is deleted\n`);
    const cache = build_cache ? `build cache: ${counted(answer.build_cache_count, "entry", "entries")} deleted\n` : "";
    return `${lines.join("")}${counted(answer.images.length, "image")} deleted, ${bytes(answer.freed_bytes)} freed\n${cache}`;
  });
}

export async function tagImage(session: Session, [reference = "", target = ""]: Words): Promise<void> {
  const image = await session.client().request("POST /api/oci/images/tag", { body: { reference, target } });
  session.show(image, () => `${visible(image.reference)} is ${shortId(image.id)}\n`);
}

export async function shareImage(session: Session, [reference = ""]: Words, flags: Flags): Promise<void> {
  const body = { reference, is_shared: flags.off !== true };
  const image = await session.client().request("PATCH /api/oci/images", { body });
  session.show(
    image,
    () => `${visible(image.reference)} is ${image.is_shared ? "shared with all tenants" : "not shared"}\n`,
  );
}

export async function inspectImage(session: Session, [reference = ""]: Words): Promise<void> {
  const found = await session.client().request("GET /api/oci/images/inspect", { query: { reference } });
  const columns: Column<Layer>[] = [
    { title: "LAYER", value: ({ digest }) => digest },
    { title: "SIZE", value: ({ size_bytes }) => bytes(size_bytes), side: "right" },
    {
      title: "UNPACKED",
      value: ({ uncompressed_size }) => (uncompressed_size === null ? null : bytes(uncompressed_size)),
      side: "right",
    },
  ];
  session.show(found, () => {
    const fields = session.list(entriesOf(found.image, session.now));
    return `${fields}\n${session.table(columns, found.layers, "no layers")}`;
  });
}

export async function showHistory(session: Session, [reference = ""]: Words): Promise<void> {
  const answer = await session.client().request("GET /api/oci/images/history", { query: { reference } });
  const columns: Column<Step>[] = [
    { title: "MADE", value: ({ created_at }) => (created_at === null ? null : relative(created_at, session.now)) },
    { title: "SIZE", value: ({ size_bytes }) => bytes(size_bytes), side: "right" },
    { title: "STEP", value: ({ created_by }) => created_by, isLong: true },
  ];
  session.show(answer, () => session.table(columns, answer.history, "no history"));
}
