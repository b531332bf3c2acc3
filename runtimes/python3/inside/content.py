"""The content of requests and answers (runtimes/envelope.ts): heads, payloads, results and errors.

It uses the C part of the module `json` alone: the other part imports `re` and `enum`, a third of the time of a start.
"""
import sys
from _json import encode_basestring, encode_basestring_ascii, make_encoder, make_scanner
from _struct import Struct

RESULT_BYTES_MAX = 1024 * 1024
_MESSAGE_MAX = 8 * 1024
_WHITESPACE = " \t\r\n"
_length_of = Struct("<I").unpack_from
_FOLDER = __file__.rpartition("/")[0] + "/"


class Refusal(Exception):
    """An error of the runtime itself: `type` of its `ErrorContent`, and the message. It has no traceback to show."""

    def __init__(self, type, message):
        super().__init__(message)
        self.type = type


def _refuse_constant(name):
    raise ValueError(name)


class _Parsing:
    """What json.JSONDecoder gives to its scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = _refuse_constant


class _Checking(_Parsing):
    """For texts that may have a number above the largest float."""

    @staticmethod
    def parse_float(text):
        value = float(text)
        if value in (_INFINITY, -_INFINITY):
            raise Refusal("PayloadNumberTooLarge", f"the payload has a number above the largest float: {text[:64]}")
        return value


_INFINITY = float("inf")
_DIGITS_MAX = 308  # Of the largest float, less one.
_EXPONENTS = ("E", "e+", *(f"e{digit}" for digit in range(10)))
_scan = make_scanner(_Parsing)
_scan_checking = make_scanner(_Checking)


def split(content):
    """Returns the head of a request and its body."""
    end = 4 + _length_of(content)[0]
    return _scan(str(content[4:end], "utf-8"), 0)[0], content[end:]


def _may_be_infinite(json):
    """True unless each number of the text has no exponent and at most 308 digits before its dot."""
    return any(map(json.__contains__, _EXPONENTS)) or (len(json) > _DIGITS_MAX and max(map(len, json.split("."))) > _DIGITS_MAX)


def payload_of(body):
    """Returns a payload: its value if it is JSON, None if it is empty, else its text."""
    if not body:
        return None
    text = str(body, "utf-8", "replace")
    json = text.strip(_WHITESPACE)
    scan = _scan_checking if _may_be_infinite(json) else _scan
    try:
        value, end = scan(json, 0)
    except (StopIteration, ValueError, SystemError) as error:
        if str(error).startswith("Exceeds the limit"):
            raise Refusal("PayloadNumberTooLarge", f"the payload has an integer with too many digits: {error}") from None
        # Before json is imported, its C part raises SystemError in place of JSONDecodeError, a ValueError.
        return text
    except RecursionError:
        raise RecursionError("the payload is nested too deeply to be parsed") from None
    return value if end == len(json) else text


def _not_json(why):
    return Refusal("ResultNotJson", f"the result cannot be expressed as JSON: {why}")


def _refuse(value):
    raise _not_json(f"it contains a value of type {type(value).__qualname__}")


def result_of(value):
    """Returns a result as JSON. Raises Refusal for what JSON cannot express, and for too large a result."""
    if value is None:
        return b""
    if isinstance(value, str):
        _refuse_size(len(value) + 2)
    try:
        parts = make_encoder({}, _refuse, encode_basestring, None, ":", ",", False, False, False)(value, 0)
        _refuse_size(sum(map(len, parts)))  # Before more copies are made of it.
        content = "".join(parts).encode()
    except UnicodeEncodeError:
        # A lone surrogate is not UTF-8, its escape is.
        content = "".join(make_encoder({}, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)(value, 0)).encode()
    except ValueError as error:
        reasons = {"Circular reference detected": "it contains itself"}
        if str(error).startswith("Out of range float"):
            raise _not_json("it contains NaN or Infinity") from None
        raise _not_json(reasons.get(str(error), error)) from None
    except TypeError as error:
        raise _not_json(error) from None
    except RecursionError:
        raise _not_json("it is nested too deeply") from None
    _refuse_size(len(content))
    return content


def _refuse_size(size):
    if size > RESULT_BYTES_MAX:
        raise Refusal("ResultTooLarge", f"the result has {size} bytes or more (limit {RESULT_BYTES_MAX})")


def error_of(error, while_what="the handler"):
    """Returns the `ErrorContent` of an exception."""
    name = error.type if isinstance(error, Refusal) else type(error).__name__
    try:
        message = f"{while_what} called sys.exit({error.code!r})" if isinstance(error, SystemExit) else str(error)
        if type(error) is ModuleNotFoundError and error.name and error.name.partition(".")[0] not in sys.modules:
            message += ": name it in requirements.txt and run hearth deploy --build, which installs dependencies"
    except BaseException:
        message = "str() of the exception failed"
    message = message or name
    if len(message) > _MESSAGE_MAX:
        message = message[:_MESSAGE_MAX] + "…"
    return f'{{"type":{encode_basestring_ascii(name)},"message":{encode_basestring_ascii(message)}}}'.encode()


def print_error(error):
    """Prints an exception with its traceback, less the frames of this program, on standard error."""
    if isinstance(error, Refusal):
        return
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename.startswith(_FOLDER):
        at = at.tb_next
    try:
        # In C: the module traceback costs milliseconds.
        sys.__excepthook__(type(error), error.with_traceback(at), at)
    except BaseException:
        pass  # The function replaced sys.stderr by something that fails.
