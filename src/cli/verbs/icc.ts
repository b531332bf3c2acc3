/** The verbs of messages between containers, as they are described. */
import { type Flag, type Group, seconds, type Verb, wholeNumber } from "../session/verb.ts";

/** Permission levels of messages, from the lowest. A test holds them against the API's. */
export const LEVELS = ["READ_ONLY", "WRITE_STATE", "EXECUTE", "ADMIN", "FULL"] as const;

const STATE: Flag = {
  flags: "--state <state>",
  about: "only messages in this state",
  choices: ["unread", "acked", "failed", "expired"],
};
const FROM_SEQ: Flag = { flags: "--from <n>", about: "number of the first message", parse: wholeNumber };
const TO_SEQ: Flag = { flags: "--to <n>", about: "number of the last message", parse: wholeNumber };
const LIMIT: Flag = { flags: "--limit <n>", about: "maximum number of messages (100)", parse: wholeNumber };

const SEND: Verb = {
  name: "send",
  words: ["[address]", "[payload]"],
  summary: "send a message to a container, a queue or a topic, and print its id",
  more: "A payload that is no JSON is sent as text. With --envelope the envelope names the receiver.",
  flags: [
    { flags: "--type <type>", about: "type of the message, or a payload kind such as exec_command (message)" },
    { flags: "--from <address>", about: "sender (api)" },
    { flags: "--envelope <file>", about: "send the encoded envelope in this file, - for standard input" },
    { flags: "--ttl <s>", about: "time until the message expires (7d): seconds, or 12h", parse: seconds },
    { flags: "--idempotency-key <key>", about: "key under which the inbox accepts one message in 24 hours" },
    { flags: "--correlation-id <id>", about: "id of the message that this one answers" },
    { flags: "--permission-level <level>", about: "permission level of the message", choices: LEVELS },
    { flags: "--request", about: "wait for the reply and print its payload" },
    { flags: "--reply-timeout <s>", about: "time to wait for the reply (30)", parse: seconds },
  ],
  examples: [
    `hearth icc send worker '{"n": 42}' --type task.created`,
    "hearth icc send queue:jobs - --type report < report.json",
    "hearth icc send worker 7 --type square --request",
  ],
  load: async () => (await import("../icc/sending.ts")).send,
};

const INBOX: Verb = {
  name: "inbox",
  words: ["<address>"],
  summary: "list messages of an inbox without delivering them",
  flags: [STATE, FROM_SEQ, LIMIT],
  examples: ["hearth icc inbox worker --state unread", "hearth icc inbox queue:jobs"],
  load: async () => (await import("../icc/inboxes.ts")).listInbox,
};

const TAIL: Verb = {
  name: "tail",
  words: ["<address>"],
  summary: "print messages of an inbox as they arrive, without delivering them, until Ctrl-C",
  flags: [{ ...FROM_SEQ, about: "number of the first message (the next one)" }],
  examples: ["hearth icc tail worker", "hearth icc tail topic:events --from 1 --json"],
  load: async () => (await import("../icc/inboxes.ts")).tailInbox,
};

const RECEIVE: Verb = {
  name: "receive",
  words: ["<address>"],
  summary: "receive messages of an inbox; each is held until its ack or the end of its lease",
  flags: [
    { flags: "--wait <s>", about: "time to wait for the first message (0; at most 60)", parse: seconds },
    { flags: "--max <n>", about: "maximum number of messages (1)", parse: wholeNumber },
    { flags: "--lease <s>", about: "time for which no other receiver gets the messages (30)", parse: seconds },
  ],
  examples: ["hearth icc receive worker --wait 10", "hearth icc receive queue:jobs --max 10 --lease 5m"],
  load: async () => (await import("../icc/receiving.ts")).receive,
};

const ACK: Verb = {
  name: "ack",
  words: ["<msg-id>"],
  summary: "ack a message, or fail it or give it back",
  flags: [
    { flags: "--inbox <address>", about: "inbox of the message, if its id is in several" },
    { flags: "--nack", about: "fail the message: it becomes a dead letter" },
    { flags: "--reason <text>", about: "with --nack: the reason" },
    { flags: "--requeue", about: "give the message back: it is delivered again" },
    { flags: "--lease <lease>", about: "refuse the ack if the message was delivered again since" },
  ],
  examples: ["hearth icc ack msg_7k2m9qx4hx1v8c0b", 'hearth icc ack task-1 --nack --reason "no such order"'],
  load: async () => (await import("../icc/receiving.ts")).ack,
};

const REPLAY: Verb = {
  name: "replay",
  words: ["<address>"],
  summary: "publish messages of an inbox to it once more, with new ids",
  flags: [STATE, FROM_SEQ, TO_SEQ, LIMIT],
  examples: ["hearth icc replay worker --state failed", "hearth icc replay queue:jobs --from 12 --to 20"],
  load: async () => (await import("../icc/inboxes.ts")).replay,
};

const DLQ: Verb = {
  name: "dlq",
  summary: "list dead letters, or publish one again",
  flags: [FROM_SEQ, LIMIT],
  examples: ["hearth icc dlq", "hearth icc dlq --json | jq -r '.messages[].reason'"],
  load: async () => (await import("../icc/dead-letters.ts")).listDead,
  more_verbs: [
    {
      name: "replay",
      words: ["<letter>"],
      summary: "publish a dead letter again, with a new id; it stays a dead letter",
      flags: [{ flags: "--to <address>", about: "another inbox (the original one)" }],
      examples: ["hearth icc dlq replay 3", "hearth icc dlq replay 3 --to queue:repair"],
      load: async () => (await import("../icc/dead-letters.ts")).replayDead,
    },
  ],
};

export const ICC: Group = {
  name: "icc",
  aliases: ["messages"],
  summary: "send and receive messages of containers",
  verbs: [
    ...[SEND, INBOX, TAIL, RECEIVE, ACK, REPLAY, DLQ],
    {
      name: "streams",
      summary: "list inboxes with their counts",
      examples: ["hearth icc streams"],
      load: async () => (await import("../icc/inboxes.ts")).listStreams,
    },
    {
      name: "permission",
      words: ["<container>", "[level]"],
      summary: "print or set what messages that a container sends may do to others",
      examples: ["hearth icc permission worker", "hearth icc permission worker EXECUTE"],
      load: async () => (await import("../icc/permission.ts")).permission,
    },
  ],
};
