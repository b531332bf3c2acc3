/**
 * Functions with code in each runtime, for daemons that are killed. Each handler answers with the number of calls that its
 * process has served, its secret, and the version that its code names.
 */
import { expect } from "vitest";
import { type Daemon, KEY } from "../support/daemon.ts";
import { archive } from "../support/file-helper.ts";
import { DaemonDied } from "./ledger.ts";

export const SECRET = { name: "TOKEN", value: "value-of-the-secret" };

const node = (mark: string): string => `import { readFileSync } from "node:fs";
let count = 0;
export const handler = async (wait_ms) => {
  count++;
  if (wait_ms) await new Promise((resolve) => setTimeout(resolve, wait_ms));
  return { count, secret: readFileSync("/run/secrets/TOKEN", "utf8"), variable: process.env.T, mark: "${mark}" };
};
`;
const python = (mark: string): string => `import os, time
count = 0
def handler(wait_ms, context):
    global count
    count += 1
    if wait_ms: time.sleep(wait_ms / 1000)
    return {"count": count, "secret": open("/run/secrets/TOKEN").read(), "variable": os.environ["T"], "mark": "${mark}"}
`;
const server = (mark: string): string => `#!/usr/bin/env python3
import http.server, json, os, time
count = 0
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        global count
        count += 1
        wait_ms = json.loads(self.rfile.read(int(self.headers["content-length"])) or "null")
        if wait_ms: time.sleep(wait_ms / 1000)
        secret = open("/run/secrets/TOKEN").read()
        answer = {"count": count, "secret": secret, "variable": os.environ["T"], "mark": "${mark}"}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
`;
/** A process per call: the instance keeps the count in its /tmp. */
const shell = (mark: string): string => `#!/bin/bash
read wait_ms
[ "\${wait_ms:-null}" = null ] || sleep $((wait_ms / 1000))
count=$(($(cat /tmp/count 2>/dev/null || echo 0) + 1))
echo $count > /tmp/count
printf '{"count":%s,"secret":"%s","variable":"%s","mark":"${mark}"}' $count "$(cat /run/secrets/TOKEN)" "$T"
`;

interface Kind {
  readonly fields: { readonly runtime: string; readonly handler: string };
  readonly file: string;
  source(mark: string): string;
}

export const KINDS: Readonly<Record<string, Kind>> = {
  nodejs: { fields: { runtime: "nodejs", handler: "index.mjs#handler" }, file: "index.mjs", source: node },
  python3: { fields: { runtime: "python3", handler: "main.py:handler" }, file: "main.py", source: python },
  custom: { fields: { runtime: "custom", handler: "./server" }, file: "server", source: server },
  // It answers in a few milliseconds: what it keeps in /tmp must outlive the call.
  shell: { fields: { runtime: "shell", handler: "./run.sh" }, file: "run.sh", source: shell },
};

/** Uploads one file and resolves to the digest. Throws DaemonDied if the daemon ended before it answered. */
export async function upload(daemon: Daemon, file: string, content: string): Promise<string> {
  const response = await fetch(`${daemon.url}/api/functions/code`, {
    method: "POST",
    headers: { "x-api-key": KEY, "content-type": "application/x-tar" },
    body: new Uint8Array(archive({ name: file, content })),
  }).catch(() => {
    throw new DaemonDied("POST /api/functions/code");
  });
  const { code_sha256, error } = (await response.json()) as { code_sha256: string; error?: string };
  expect([response.status, error]).toEqual([201, undefined]);
  return code_sha256;
}

/** The function of a deployment, with a secret as file and variable and egress off. */
export function functionOf(kind: string, name: string, code_sha256: string): Record<string, unknown> {
  return {
    ...KINDS[kind]?.fields,
    name,
    code_sha256,
    egress: "off",
    secrets: [SECRET.name],
    environment: { T: { secret: SECRET.name } },
  };
}

export interface Answered {
  readonly count: number;
  readonly mark: string;
}

/** What the handler answered. Checks that its secret reached it. */
// biome-ignore lint/suspicious/noExplicitAny: the record as it came.
export function answered(record: any): Answered {
  expect(record).toMatchObject({ status: "success", error_message: null });
  const { count, mark, secret, variable } = record.result ?? JSON.parse(record.stdout);
  expect([secret, variable]).toEqual([SECRET.value, SECRET.value]);
  return { count, mark };
}
