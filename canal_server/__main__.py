"""Lets `python -m canal_server` be the command."""

from canal_server.cli import main

raise SystemExit(main())
