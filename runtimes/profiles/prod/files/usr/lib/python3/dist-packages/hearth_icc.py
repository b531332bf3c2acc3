"""Messages between containers, from inside of one, through /run/hearth/icc.sock. The container needs no key: the daemon knows
it by its socket.

    import hearth_icc as icc

    icc.send("worker", {"n": 1}, type="job")        # to a container, or "queue:jobs", "topic:news"
    for message in icc.stream():                    # each is held until it is acked, or its lease ends
        print(message["from"], message["payload"])
        icc.ack(message)
    answer = icc.request("worker", {"n": 1}, timeout=10)["payload"]

A call waits up to 10 seconds for a daemon that restarts, and repeats a request that got no answer. A message that was sent
twice is one message: each has an id. Only the standard library is used.
"""

import json
import os
import socket
import sys
import threading
import time

PATH = "/run/hearth/icc.sock"
# How long a call waits for the daemon, and between two attempts at first and at most.
PATIENCE_S = 10.0
PAUSE_S = 0.05
PAUSE_S_MAX = 1.0
# Beyond the time that a request itself waits.
ANSWER_S = 30.0
IDLE_MAX = 8
LINE_BYTES_MAX = 65536


class IccError(Exception):
    """A refusal of the daemon. `code` is from its table of errors, such as NOT_FOUND."""

    def __init__(self, status, body):
        super().__init__(body.get("error") or "status %d" % status)
        self.status = status
        self.code = body.get("error_code") or "INTERNAL"
        self.retryable = bool(body.get("retryable"))
        self.retry_after = body.get("retry_after") or 1
        self.details = body.get("details")
        self.hint = body.get("hint")


class Unreachable(OSError):
    """No daemon answered in time, or the container has no socket."""


class Message(dict):
    """A received message, with the inbox that it came from."""

    queue = None


class _Connection:
    def __init__(self, path, timeout):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(path)
        except BaseException:
            self.socket.close()
            raise
        self.reader = self.socket.makefile("rb")
        self.is_used = False

    def close(self):
        self.reader.close()
        self.socket.close()

    def send(self, method, target, body, version):
        head = "%s %s HTTP/%s\r\nHost: hearth\r\n" % (method, target, version)
        if body is not None:
            head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        self.socket.sendall(head.encode() + b"\r\n" + (body or b""))

    def head(self):
        line = self._line()
        parts = line.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/"):
            raise ConnectionError("no HTTP response")
        headers = {}
        while True:
            line = self._line()
            if line == "":
                return int(parts[1]), headers
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()

    def body(self, headers):
        if headers.get("transfer-encoding", "").lower() == "chunked":
            pieces = []
            while True:
                size = int(self._line().split(";")[0], 16)
                pieces.append(self._exactly(size))
                self._line()
                if size == 0:
                    return b"".join(pieces)
        return self._exactly(int(headers.get("content-length", 0)))

    def _line(self):
        line = self.reader.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\n"):
            raise ConnectionError("the daemon closed the connection")
        return line.rstrip(b"\r\n").decode("latin-1")

    def _exactly(self, size):
        found = self.reader.read(size)
        if len(found) < size:
            raise ConnectionError("the daemon closed the connection")
        return found


def _decoded(body):
    try:
        return json.loads(body) if body else {}
    except ValueError:
        return {}


class Client:
    """Calls of one container. Threads may share it."""

    def __init__(self, path=PATH, patience=PATIENCE_S):
        self.path = path
        self.patience = patience
        self._idle = []
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self.state = State(self)

    def self(self):
        """Says who the container is."""
        return self._call("GET", "/v1/self")

    def send(self, to, payload=None, type="message", **more):
        """Publishes a message; it is durable when this returns. `more`: fields such as ttl_ms, correlation_id."""
        return self._call("POST", "/v1/messages", {"to": to, "type": type, "payload": payload, **_identified(more)})

    def send_envelope(self, envelope):
        """Publishes an encoded jets.Envelope."""
        import base64

        return self._call("POST", "/v1/messages", {"envelope_b64": base64.b64encode(envelope).decode()})

    def receive(self, wait=0, max=1, queue=None, lease=None, ordered=False):
        """Returns messages, each held for `lease` seconds. Waits up to `wait` seconds for the first one."""
        body = {"max": max, "wait_ms": int(wait * 1000), "ordered": ordered, **_inbox(queue), **_lease(lease)}
        found = self._call("POST", "/v1/receive", body, wait_s=wait)
        return [_message(one, queue) for one in found["messages"]]

    def stream(self, queue=None, lease=None, ordered=False, prefetch=1):
        """Yields messages as they come, without end. While `prefetch` of them are not settled, none follows."""
        query = {**_inbox(queue), **_lease(lease), "ordered": "1" if ordered else "0", "prefetch": prefetch}
        for found in self._events("/v1/stream", query):
            yield _message(found, queue)

    def ack(self, message, queue=None):
        """Settles a message, by itself or by its id."""
        return self._call("POST", "/v1/ack", {**_settled(message, queue), "action": "ack"})

    def nack(self, message, reason=None, requeue=False, delay=None, queue=None):
        """Fails a message: it becomes a dead letter, or with `requeue` is due again after `delay` seconds."""
        body = {**_settled(message, queue), "action": "nack", "requeue": requeue}
        if reason is not None:
            body["reason"] = reason
        if delay is not None:
            body["delay_ms"] = int(delay * 1000)
        return self._call("POST", "/v1/ack", body, repeats=False)

    def request(self, to, payload=None, type="request", timeout=30, **more):
        """Publishes a message and returns the reply. Raises IccError with the code TIMEOUT."""
        body = {"to": to, "type": type, "payload": payload, "timeout_ms": int(timeout * 1000), **_identified(more)}
        return self._call("POST", "/v1/request", body, wait_s=timeout)

    def reply(self, message, payload=None, type=None):
        """Replies to a message, by itself, or by its id if it came into the container's own inbox."""
        asked = {"msg_id": message} if isinstance(message, str) else _reply_to(message)
        body = {**asked, "payload": payload}
        if type is not None:
            body["type"] = type
        return self._call("POST", "/v1/reply", body)

    def subscribe(self, topic):
        """Copies of what is sent to topic:<topic> come into the container's inbox from now on."""
        return self._call("PUT", "/v1/topics/" + _quoted(topic))

    def unsubscribe(self, topic):
        return self._call("DELETE", "/v1/topics/" + _quoted(topic))

    def close(self):
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _call(self, method, target, body=None, wait_s=0, repeats=True):
        sent = None if body is None else json.dumps(body).encode()
        end_s = time.monotonic() + self.patience
        pause_s = PAUSE_S
        while True:
            pause = pause_s
            try:
                status, found = self._once(method, target, sent, wait_s, repeats)
                if status < 400:
                    return found
                refusal = IccError(status, found)
                # Nothing was done: a full or stopping daemon, or a container that is too fast.
                if not refusal.retryable or status not in (429, 503) or time.monotonic() + refusal.retry_after > end_s:
                    raise refusal
                pause = refusal.retry_after
            except (ConnectionError, FileNotFoundError, BlockingIOError) as error:
                if isinstance(error, _Lost) and not repeats:
                    raise Unreachable("no answer from the daemon: %s" % error) from error
                if time.monotonic() + pause_s > end_s:
                    raise Unreachable("cannot reach the daemon at %s: %s" % (self.path, error)) from error
            except socket.timeout as error:
                raise Unreachable("no answer from the daemon in time") from error
            time.sleep(pause)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def _once(self, method, target, sent, wait_s, repeats):
        with self._lock:
            # A forked child must not write to connections of its parent.
            if self._pid != os.getpid():
                self._pid, self._idle = os.getpid(), []
            connection = self._idle.pop() if self._idle and repeats else None
        if connection is None:
            connection = _Connection(self.path, ANSWER_S + wait_s)
        connection.socket.settimeout(ANSWER_S + wait_s)
        try:
            connection.send(method, target, sent, "1.1")
            status, headers = connection.head()
            found = _decoded(connection.body(headers))
        except ConnectionError as error:
            connection.close()
            # The daemon closes connections that were idle for long.
            if connection.is_used:
                return self._once(method, target, sent, wait_s, repeats)
            raise _Lost(str(error)) from error
        except BaseException:
            connection.close()
            raise
        connection.is_used = True
        with self._lock:
            is_kept = len(self._idle) < IDLE_MAX and headers.get("connection", "").lower() != "close"
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
        return status, found

    def _events(self, target, query):
        """Yields the data of server-sent events, and connects again where the daemon ended them."""
        target += "?" + "&".join("%s=%s" % (name, _quoted(str(value))) for name, value in query.items())
        end_s = time.monotonic() + self.patience
        while True:
            pause_s = PAUSE_S
            connection = None
            try:
                connection = _Connection(self.path, ANSWER_S)
                connection.send("GET", target, None, "1.0")
                status, headers = connection.head()
                if status >= 400:
                    refusal = IccError(status, _decoded(connection.body(headers)))
                    if not refusal.retryable or time.monotonic() > end_s:
                        raise refusal
                    pause_s = refusal.retry_after
                else:
                    for line in connection.reader:
                        end_s = time.monotonic() + self.patience
                        if line.startswith(b"data: "):
                            yield json.loads(line[6:])
            except (ConnectionError, FileNotFoundError, BlockingIOError, socket.timeout) as error:
                if time.monotonic() > end_s:
                    raise Unreachable("cannot reach the daemon at %s: %s" % (self.path, error)) from error
            finally:
                if connection is not None:
                    connection.close()
            time.sleep(pause_s)


class State:
    """Values by key that all containers of the tenant see, each with a version."""

    def __init__(self, client):
        self._client = client

    def get(self, key):
        """Returns {"key", "value", "version", ...}. Raises IccError with the code NOT_FOUND."""
        return self._client._call("GET", "/v1/state/" + _quoted(key))

    def put(self, key, value, if_version=None):
        """Writes a value. With `if_version` only over that version; 0: only a new key. Raises IccError (WRONG_STATE)."""
        body = {"value": value} if if_version is None else {"value": value, "if_version": if_version}
        return self._client._call("PUT", "/v1/state/" + _quoted(key), body, repeats=if_version is None)

    def delete(self, key):
        return self._client._call("DELETE", "/v1/state/" + _quoted(key))

    def list(self, prefix=""):
        return self._client._call("GET", "/v1/state?prefix=" + _quoted(prefix))["entries"]

    def watch(self, prefix=""):
        """Yields the present entries, then each change, without end."""
        return self._client._events("/v1/state", {"prefix": prefix, "watch": "1"})


class _Lost(ConnectionError):
    """The connection ended after the request was sent."""


def _identified(more):
    # A repeated request is then known as the same message.
    return more if "msg_id" in more else {"msg_id": "msg_" + os.urandom(16).hex(), **more}


def _inbox(queue):
    return {} if queue is None else {"inbox": queue if queue.startswith("queue:") else "queue:" + queue}


def _lease(lease):
    return {} if lease is None else {"lease_ms": int(lease * 1000)}


def _message(found, queue):
    message = Message(found)
    message.queue = queue
    return message


def _reply_to(message):
    return {"correlation_id": message["msg_id"], "to": message["from"]}


def _settled(message, queue):
    if isinstance(message, str):
        return {"msg_id": message, **_inbox(queue)}
    body = {"msg_id": message["msg_id"], **_inbox(getattr(message, "queue", None) if queue is None else queue)}
    if message.get("lease") is not None:
        body["lease"] = message["lease"]
    return body


_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def _quoted(text):
    return "".join(chr(byte) if byte in _PLAIN else "%%%02X" % byte for byte in text.encode())


_client = Client()
send = _client.send
send_envelope = _client.send_envelope
receive = _client.receive
stream = _client.stream
ack = _client.ack
nack = _client.nack
request = _client.request
reply = _client.reply
subscribe = _client.subscribe
unsubscribe = _client.unsubscribe
state = _client.state


def whoami():
    """Says who the container is."""
    return _client.self()


# The command hearth-icc

USAGE = """usage: hearth-icc COMMAND [OPTION]...

  self                              who this container is
  send TO [PAYLOAD|-]               send a message: --type T, --text, --id ID, --key KEY, --ttl SECONDS, --correlation ID
  request TO [PAYLOAD|-]            send, and print the reply: --type T, --text, --timeout SECONDS
  receive                           print messages, one a line: --wait SECONDS, --max N, --queue NAME, --lease SECONDS,
                                    --ordered, --ack
  stream                            print messages as they come: --queue NAME, --lease SECONDS, --ordered, --ack
  ack MSG_ID                        settle a message: --lease TOKEN, --queue NAME
  nack MSG_ID                       fail a message: --requeue, --delay SECONDS, --reason TEXT, --lease TOKEN, --queue NAME
  reply MSG_ID [PAYLOAD|-]          reply to a message: --type T, --text
  subscribe TOPIC, unsubscribe TOPIC
  state get KEY, state put KEY [VALUE|-], state delete KEY, state list [PREFIX], state watch [PREFIX]
                                    put: --text, --if-version N

TO is a container's id or name, queue:NAME, topic:NAME or state:KEY. PAYLOAD is JSON; other text, and all with --text, is
sent as a string; - reads it from standard input.
Exit status: 0, 1 refused by the daemon, 2 wrong usage, 3 no daemon, 4 no message.
"""

FLAGS = {"text", "ordered", "ack", "requeue"}
OPTIONS = {
    "send": {"type", "text", "id", "key", "ttl", "correlation"},
    "request": {"type", "text", "timeout"},
    "receive": {"wait", "max", "queue", "lease", "ordered", "ack"},
    "stream": {"queue", "lease", "ordered", "ack"},
    "ack": {"lease", "queue"},
    "nack": {"requeue", "delay", "reason", "lease", "queue"},
    "reply": {"type", "text"},
    "state put": {"text", "if-version"},
}
NUMBERS = {"ttl", "timeout", "wait", "max", "delay", "if-version"}


class _Usage(Exception):
    pass


def _parsed(command, words):
    """Returns the arguments and the options of a command."""
    given, options = [], {}
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--":
            return given + words, options
        if not word.startswith("--"):
            given.append(word)
            continue
        name, has_value, value = word[2:].partition("=")
        if name not in OPTIONS.get(command, ()):
            raise _Usage("unknown option of %s: --%s" % (command, name))
        if name in FLAGS:
            options[name] = True
            continue
        if not has_value:
            if not words:
                raise _Usage("--%s needs a value" % name)
            value = words.pop(0)
        options[name] = _number(name, value) if name in NUMBERS or (name, command) in _LEASE_SECONDS else value
    return given, options


_LEASE_SECONDS = {("lease", "receive"), ("lease", "stream")}


def _number(name, text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1e12:
        raise _Usage("--%s is not a number: %s" % (name, text))
    return int(value) if value == int(value) else value


def _payload(given, options):
    """Returns the payload of what is given behind the first argument."""
    text = given[0] if given else None
    if text is None:
        return None
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "strict")
    if "text" in options:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _print(value):
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _printed(messages, options):
    """Prints messages as they come, and acks each after it. Returns how many."""
    count = 0
    for message in messages:
        _print(message)
        if "ack" in options:
            ack(message)
        count += 1
    return count


def _end_with_reader():
    """Ends the process when the reader of its output leaves, as in `hearth-icc stream | head -n 1`."""
    import select

    def wait():
        poll = select.poll()
        poll.register(1, 0)
        poll.poll()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _counted(command, given, least, most):
    if not least <= len(given) <= most:
        raise _Usage("wrong number of arguments of %s" % command)


def _run(words):
    command, rest = words[0], words[1:]
    if command == "state" and rest:
        command, rest = "state " + rest[0], rest[1:]
    given, options = _parsed(command, rest)
    chosen = {name: options[name] for name in ("queue", "ordered") if name in options}
    typed = {"type": options["type"]} if "type" in options else {}
    if command in ("self", "receive", "stream"):
        _counted(command, given, 0, 0)
    elif command in ("send", "request", "reply", "state put"):
        _counted(command, given, 1, 2)
    elif command in ("state list", "state watch"):
        _counted(command, given, 0, 1)
    else:
        _counted(command, given, 1, 1)
    if command in ("stream", "state watch"):
        _end_with_reader()
    if command == "self":
        _print(whoami())
    elif command == "send":
        names = {"id": "msg_id", "key": "idempotency_key", "correlation": "correlation_id"}
        more = {name: options[option] for option, name in names.items() if option in options}
        if "ttl" in options:
            more["ttl_ms"] = int(options["ttl"] * 1000)
        _print(send(given[0], _payload(given[1:], options), **typed, **more))
    elif command == "request":
        timeout = {"timeout": options["timeout"]} if "timeout" in options else {}
        _print(request(given[0], _payload(given[1:], options), **typed, **timeout))
    elif command == "receive":
        asked = {name: options[name] for name in ("wait", "max", "lease") if name in options}
        return 0 if _printed(receive(**asked, **chosen), options) > 0 else 4
    elif command == "stream":
        _printed(stream(**chosen, **({"lease": options["lease"]} if "lease" in options else {})), options)
    elif command in ("ack", "nack"):
        message = {"msg_id": given[0], "lease": options.get("lease")}
        queue = options.get("queue")
        if command == "ack":
            _print(ack(message, queue=queue))
        else:
            more = {name: options[name] for name in ("reason", "requeue", "delay") if name in options}
            _print(nack(message, queue=queue, **more))
    elif command == "reply":
        _print(reply(given[0], _payload(given[1:], options), **typed))
    elif command == "subscribe":
        _print(subscribe(given[0]))
    elif command == "unsubscribe":
        _print(unsubscribe(given[0]))
    elif command == "state get":
        _print(state.get(given[0]))
    elif command == "state put":
        _print(state.put(given[0], _payload(given[1:], options), options.get("if-version")))
    elif command == "state delete":
        _print(state.delete(given[0]))
    elif command == "state list":
        for entry in state.list(*given):
            _print(entry)
    elif command == "state watch":
        for entry in state.watch(*given):
            _print(entry)
    return 0


COMMANDS = "self send request receive stream ack nack reply subscribe unsubscribe".split()
STATE_COMMANDS = "get put delete list watch".split()


def main(words):
    if not words or words[0] in ("help", "--help", "-h"):
        sys.stdout.write(USAGE)
        return 0 if words else 2
    before = words[: words.index("--")] if "--" in words else words
    if "--help" in before:
        sys.stdout.write(USAGE)
        return 0
    try:
        if words[0] not in COMMANDS and (words[0] != "state" or words[1:2] == [] or words[1] not in STATE_COMMANDS):
            raise _Usage("unknown command: %s" % " ".join(words[:2] if words[0] == "state" else words[:1]))
        return _run(words)
    except _Usage as error:
        sys.stderr.write("hearth-icc: %s (hearth-icc help lists the commands)\n" % error)
        return 2
    except IccError as error:
        sys.stderr.write("hearth-icc: %s (%s)\n" % (error, error.code))
        if error.hint:
            sys.stderr.write("  %s\n" % error.hint)
        return 1
    except Unreachable as error:
        sys.stderr.write("hearth-icc: %s\n" % error)
        return 3
    except BrokenPipeError:
        # The reader of the output left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
