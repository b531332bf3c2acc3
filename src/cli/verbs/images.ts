/** The verbs of images, as they are described; what they do is loaded when one is called. */
import { collect, type Group, LIMIT, number, type Verb } from "../session/verb.ts";

export const IMAGE_VERBS: readonly Verb[] = [
  {
    name: "images",
    words: ["[filter]"],
    summary: "list images, or those whose reference contains a text",
    flags: [
      { flags: "--digests", about: "show digests of manifests" },
      { flags: "-q, --quiet", about: "print only the ids" },
      LIMIT,
    ],
    examples: ["hearth images", "hearth images alpine --digests"],
    load: async () => (await import("../images/images.ts")).listImages,
  },
  {
    name: "pull",
    words: ["<reference>"],
    summary: "pull an image from a registry",
    more: "Ctrl-C cancels the pull. hearth asks for the password, or reads it from standard input with --password-stdin; no flag takes it: every user of a machine can read the arguments of a process.",
    flags: [
      { flags: "--platform <os/architecture>", about: "platform to select from an index (default: the node's)" },
      { flags: "--force", about: "ask the registry also for a digest that is there" },
      { flags: "-u, --username <name>", about: "user name for the registry" },
      { flags: "--password-stdin", about: "read the password for the registry from standard input" },
    ],
    examples: [
      "hearth pull alpine:3.20",
      "pass show registry | hearth pull registry.example.com/team/app:1 -u ada --password-stdin",
    ],
    load: async () => (await import("../images/images.ts")).pullImage,
  },
  {
    name: "build",
    words: ["[directory]"],
    summary: "build an image from a folder with a Dockerfile",
    more: "hearth sends the files of the folder that .dockerignore does not name, and prints the log of the build to standard error. If a step fails, the exit code is 1. Ctrl-C cancels the build. RUN --mount=type=secret mounts secrets of the tenant; --build-arg is no place for secrets.",
    flags: [
      { flags: "-t, --tag <reference>", about: "reference of the image, such as app:1" },
      { flags: "-f, --file <file>", about: "build file in the folder (default: Dockerfile or Containerfile)" },
      { flags: "--build-arg <NAME=VALUE>", about: "set an ARG of the build file; repeatable", parse: collect },
      { flags: "--target <stage>", about: "build this stage, by name or number (default: the last one)" },
      { flags: "--secret <name>", about: "allow the build to mount a secret; repeatable", parse: collect },
      { flags: "--no-cache", about: "run every step again" },
      {
        flags: "--egress <rules>",
        about: "outbound traffic of commands: on, off, or allowed addresses, comma-separated",
        parse: collect,
      },
    ],
    examples: ["hearth build -t app:1", "hearth build ./site -t site:2 -f Dockerfile.prod --build-arg VERSION=2"],
    load: async () => (await import("../project/image-build.ts")).build,
  },
  {
    name: "push",
    words: ["<image>", "[new-reference]"],
    summary: "push an image to a registry, under its reference or another one",
    more: "Ctrl-C cancels the push. Without --username, the daemon uses the credentials of 'hearth login registry'. hearth asks for the password, or reads it from standard input with --password-stdin.",
    flags: [
      { flags: "-u, --username <name>", about: "user name for the registry" },
      { flags: "--password-stdin", about: "read the password for the registry from standard input" },
    ],
    examples: [
      "hearth push registry.example.com/team/app:1",
      "hearth push alpine:3.20 registry.example.com/team/alpine:3.20",
    ],
    load: async () => (await import("../images/transfers.ts")).pushImage,
  },
  {
    name: "save",
    words: ["<image...>"],
    summary: "write an image as an OCI archive to a file or to standard output",
    more: "Each archive has one image.",
    flags: [{ flags: "-o, --output <file>", about: "write to a file (default: standard output, unless a terminal)" }],
    examples: ["hearth save alpine:3.20 -o alpine.tar", "hearth save alpine:3.20 | gzip > alpine.tar.gz"],
    load: async () => (await import("../images/transfers.ts")).saveImage,
  },
  {
    name: "load",
    words: ["[file]"],
    summary: "load images from an archive (OCI or docker save): a file, or standard input",
    flags: [
      { flags: "-i, --input <file>", about: "the archive, in place of the argument" },
      { flags: "-t, --tag <reference>", about: "reference of the image (default: its name in the archive)" },
    ],
    examples: [
      "hearth load app.tar",
      "docker save app:1 | hearth load",
      "buildah push app:1 oci-archive:app.tar && hearth load app.tar -t app:1",
    ],
    load: async () => (await import("../images/load.ts")).loadImage,
  },
  {
    name: "rmi",
    words: ["<image...>"],
    summary: "delete images that no container uses",
    flags: [{ flags: "--no-prune", about: "return before the daemon frees unused layers" }],
    examples: ["hearth rmi alpine:3.20"],
    load: async () => (await import("../images/images.ts")).deleteImages,
  },
  {
    name: "tag",
    words: ["<image>", "<new-reference>"],
    summary: "give an image an additional reference",
    examples: ["hearth tag alpine:3.20 acme/base:1"],
    load: async () => (await import("../images/images.ts")).tagImage,
  },
  {
    name: "share",
    words: ["<image>"],
    summary: "share an image with all tenants (operator only)",
    flags: [{ flags: "--off", about: "end the sharing; containers keep the image" }],
    examples: ["hearth image share alpine:3.20", "hearth image share alpine:3.20 --off"],
    load: async () => (await import("../images/images.ts")).shareImage,
  },
  {
    name: "prune",
    summary: "delete images that no container and no function version uses",
    flags: [
      { flags: "--older-than <s>", about: "only what was last used this many seconds ago", parse: number },
      { flags: "--build-cache", about: "delete the build cache, too" },
    ],
    examples: ["hearth prune", "hearth prune --older-than 604800", "hearth prune --build-cache"],
    load: async () => (await import("../images/images.ts")).pruneImages,
  },
  {
    name: "inspect",
    words: ["<image>"],
    summary: "show all fields and the layers of an image",
    examples: ["hearth image inspect alpine:3.20"],
    load: async () => (await import("../images/images.ts")).inspectImage,
  },
  {
    name: "history",
    words: ["<image>"],
    summary: "show the build steps of an image",
    examples: ["hearth image history alpine:3.20"],
    load: async () => (await import("../images/images.ts")).showHistory,
  },
  {
    name: "registries",
    summary: "list registries for which credentials are stored",
    flags: [LIMIT],
    examples: ["hearth registries"],
    load: async () => (await import("../images/registries.ts")).listRegistries,
  },
];

/** Verbs that stand alone too: their names are no other verb's. */
const ALONE = new Set(["images", "pull", "push", "build", "save", "load", "rmi", "prune", "tag", "registries"]);
export const TOP_IMAGE_VERBS: readonly Verb[] = IMAGE_VERBS.filter(({ name }) => ALONE.has(name));

/** Verbs that have another name in the group. */
const IN_GROUP: Readonly<Record<string, Partial<Verb>>> = {
  images: { name: "list", aliases: ["ls"], examples: ["hearth image list alpine"] },
  prune: { examples: ["hearth image prune --older-than 604800"] },
  rmi: { name: "rm", examples: ["hearth image rm alpine:3.20"] },
};

export const IMAGES: Group = {
  name: "image",
  summary: "image commands, those above and more",
  verbs: IMAGE_VERBS.map((verb) => ({ ...verb, ...IN_GROUP[verb.name] })),
};
