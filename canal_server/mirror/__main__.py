"""Lets `python -m canal_server.mirror` be `canal-server mirror`."""

import importlib
import sys

# By name: the command loads this package, not this package the command.
main = importlib.import_module("canal_server.cli").main

if __name__ == "__main__":
    raise SystemExit(main(["mirror", *sys.argv[1:]]))
