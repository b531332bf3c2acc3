/** Programs behind published services: one that answers as it is asked, and one that behaves badly. Node in a container. */

/** Serves HTTP and WebSockets on port 8080. */
const HONEST = `
for (const fault of ["uncaughtException", "unhandledRejection"]) process.on(fault, (error) => console.error(error));
const http = require("node:http"), crypto = require("node:crypto");
const seen = { connections: 0 };
const server = http.createServer(async (request, response) => {
  const url = new URL(request.url, "http://x");
  const path = url.pathname;
  if (path === "/cookie") {
    response.writeHead(200, { "set-cookie": url.searchParams.getAll("set") });
    return response.end("set");
  }
  if (path === "/status") { response.writeHead(Number(url.searchParams.get("code")), "Own Words", { "x-own": "1" }); return response.end(); }
  if (path === "/not-modified") { response.writeHead(304, { etag: '"a"' }); return response.end(); }
  if (path === "/big") {
    const left = { bytes: Number(url.searchParams.get("bytes")) };
    response.writeHead(200, url.searchParams.has("length") ? { "content-length": left.bytes } : {});
    const chunk = Buffer.alloc(65536, "x");
    const go = () => { while (left.bytes > 0) { const part = chunk.subarray(0, Math.min(chunk.length, left.bytes)); left.bytes -= part.length; seen.sent = (seen.sent ?? 0) + part.length; if (!response.write(part)) return response.once("drain", go); } response.end(); };
    return go();
  }
  if (path === "/events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    let n = 0;
    const timer = setInterval(() => { response.write("data: " + n++ + "\\n\\n"); if (n === 3) { clearInterval(timer); response.end(); } }, 150);
    return;
  }
  if (path === "/hints") { response.writeEarlyHints({ link: "</a.css>; rel=preload" }); response.writeProcessing(); return response.end("hinted"); }
  if (path === "/trailers") { response.writeHead(200, { trailer: "x-sum" }); response.write("a"); response.addTrailers({ "x-sum": "42" }); return response.end(); }
  if (path === "/hop") { response.writeHead(200, { connection: "close, x-secret-hop", "x-secret-hop": "1", "proxy-authenticate": "x", "x-kept": "1" }); return response.end(); }
  if (path === "/policy") { response.writeHead(200, { "referrer-policy": "no-referrer" }); return response.end(); }
  if (path === "/early") { response.writeHead(413); return response.end("too large"); }
  if (path === "/seen") return response.end(JSON.stringify(seen));
  const hash = crypto.createHash("sha256");
  let bytes = 0;
  for await (const chunk of request) { hash.update(chunk); bytes += chunk.length; }
  response.writeHead(200, { "content-type": "application/json" });
  response.end(request.method === "HEAD" ? "" : JSON.stringify({ method: request.method, url: request.url, headers: request.rawHeaders, bytes, sha256: hash.digest("hex"), trailers: request.rawTrailers, connections: seen.connections }));
});
server.on("connection", () => seen.connections++);
server.on("checkContinue", (request, response) => {
  if (request.url.startsWith("/refuse")) { response.writeHead(417); return response.end("no"); }
  response.writeContinue();
  server.emit("request", request, response);
});
// A WebSocket that sends back what it gets, unmasked; 'who' tells of the request.
server.on("upgrade", (request, socket, head) => {
  if (request.url.startsWith("/refused")) return socket.end("HTTP/1.1 403 Forbidden\\r\\nContent-Length: 4\\r\\nX-Why: no\\r\\n\\r\\nno!!");
  if (request.url.startsWith("/hang")) return;
  const accept = crypto.createHash("sha1").update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + "\\r\\nSet-Cookie: ws=1; Domain=example.com\\r\\n\\r\\n");
  const frame = (text) => { const bytes = Buffer.from(text); const size = bytes.length < 126 ? Buffer.from([0x81, bytes.length]) : Buffer.from([0x81, 126, bytes.length >> 8, bytes.length & 255]); socket.write(Buffer.concat([size, bytes])); };
  if (request.url.startsWith("/deaf")) return;
  let buffer = head;
  const read = () => {
    while (buffer.length >= 6) {
      let length = buffer[1] & 127, at = 2;
      if (length === 126) { length = buffer.readUInt16BE(2); at = 4; }
      if (buffer.length < at + 4 + length) return;
      const mask = buffer.subarray(at, at + 4), data = Buffer.from(buffer.subarray(at + 4, at + 4 + length));
      for (let i = 0; i < data.length; i++) data[i] ^= mask[i & 3];
      if ((buffer[0] & 15) === 8) { socket.end(Buffer.from([0x88, 0])); return; }
      frame(data.toString() === "who" ? JSON.stringify({ url: request.url, headers: request.rawHeaders }) : data.toString());
      buffer = buffer.subarray(at + 4 + length);
    }
  };
  socket.on("data", (chunk) => { buffer = Buffer.concat([buffer, chunk]); read(); });
  socket.on("error", () => socket.destroy());
  read();
});
server.listen(8080, "0.0.0.0");
`;

/** Answers on port 9090 with bytes of its own choice, by the first word of the path. */
const HOSTILE = `
const net = require("node:net");
const open = new Set();
net.createServer((socket) => {
  open.add(socket); socket.on("close", () => open.delete(socket));
  socket.on("error", () => socket.destroy());
  let isAsked = false;
  socket.on("data", (bytes) => {
    if (isAsked) return; isAsked = true;
    const [, path] = /^\\S+ \\/([^ ?]*)/.exec(bytes.toString("latin1")) ?? [];
    const every = (ms, text) => { const timer = setInterval(() => socket.destroyed ? clearInterval(timer) : socket.write(text), ms); };
    const forever = (text) => { const go = () => { while (!socket.destroyed && socket.write(text)); }; socket.on("drain", go); go(); };
    const ways = {
      headers: () => { socket.write("HTTP/1.1 200 OK\\r\\n"); forever("x-a: " + "b".repeat(1000) + "\\r\\n"); },
      "many-headers": () => { socket.write("HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: 0\\r\\n" + "a: b\\r\\n".repeat(12000) + "\\r\\n"); },
      "drip-headers": () => { socket.write("HTTP/1.1 200 OK\\r\\nx: "); every(100, "a"); },
      continues: () => forever("HTTP/1.1 102 Processing\\r\\n\\r\\n"),
      garbage: () => socket.write("\\0\\0\\0 what\\r\\n\\r\\n"),
      silent: () => {},
      close: () => socket.destroy(),
      "close-early": () => { socket.write("HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nabc"); setTimeout(() => socket.destroy(), 50); },
      "bad-chunk": () => { socket.write("HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5\\r\\nhello\\r\\nzz\\r\\n"); },
      smuggle: () => socket.write("HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n"),
      pair: () => { socket.write("HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nokHTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\npoison"); isAsked = false; },
      upgrade: () => socket.write("HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: h2c\\r\\n\\r\\n"),
      status: () => socket.write("HTTP/1.1 1000 Odd\\r\\nContent-Length: 0\\r\\n\\r\\n"),
      flood: () => { socket.write("HTTP/1.1 200 OK\\r\\n\\r\\n"); forever(Buffer.alloc(65536)); },
      cookie: () => (isAsked = false, socket.write("HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nSet-Cookie: hearth_service=stolen\\r\\nSet-Cookie: a=1; dOmAiN = .example.com ; Path=/\\r\\n\\r\\n")),
      open: () => socket.end("HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n" + open.size),
    };
    (ways[path] ?? ways.close)();
  });
}).listen(9090, "0.0.0.0");
`;

/** Command of a container that runs both. */
export const BACKEND: readonly string[] = ["node", "-e", `${HONEST}\n${HOSTILE}`];
