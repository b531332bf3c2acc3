"""What `logging` prints while the function has no handler of its own, with the id of the invocation.

Python hands such records to `logging.lastResort`, which here takes all that loggers let through, as lines of AWS Lambda's form. It is no
handler of the root logger: basicConfig() and dictConfig() work as everywhere, and replace it.
"""
from _hearth.output import CALL

_LINE = "[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(invocation_id)s\t%(message)s"
_TIME = "%Y-%m-%dT%H:%M:%S"


def adapt(wire, logging):
    """Right after the module ran. Levels stay those of the loggers: WARNING until the function sets another."""
    from time import gmtime

    class Lines(logging.Formatter):
        converter = gmtime

        def formatMessage(self, record):
            record.invocation_id = (CALL.get() or wire.sole).invocation_id
            return super().formatMessage(record)

    logging.lastResort.setFormatter(Lines(_LINE, _TIME))
    logging.lastResort.setLevel(logging.NOTSET)
