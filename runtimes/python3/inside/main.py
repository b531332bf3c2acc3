"""The resident process of the runtime python3: /usr/bin/python3 <flags> main.py <directory of the code> [descriptor].

The descriptor has what an interpreter before this one had not worked on (renewal.py).

The modules beside this file form the package `_hearth`, made by hand: sys.path and the names of a function's own
modules stay free of them.
"""
import sys

if __name__ == "__main__":  # multiprocessing imports the main file into processes that it spawns.
    if sys.path and sys.path[0] == __file__.rpartition("/")[0]:
        del sys.path[0]  # Before Python 3.11, only `-I` keeps it out.
    package = type(sys)("_hearth")
    package.__path__ = [__file__.rpartition("/")[0]]
    sys.modules["_hearth"] = package
    from _hearth.process import main

    main(*sys.argv[1:])
