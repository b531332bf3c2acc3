"""Variables of one call in os.environ, where calls do not overlap."""
import os


def swap(variables):
    """Sets variables. Returns what `restore` needs to undo it."""
    old = {name: os.environ.get(name) for name in variables}
    try:
        os.environ.update(variables)
    except BaseException:
        restore(old)
        raise
    return old


def restore(old):
    for name, value in old.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
