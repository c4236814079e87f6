#!/bin/sh
# Stops the server that startup.sh started, and waits until it has ended. Options are
# passed on to `canal-server stop`.
set -eu

bin=$(dirname "$(readlink -f "$0")")
base=$(dirname "$bin")
command=${CANAL_SERVER:-$base/venv/bin/canal-server}
[ -n "${CANAL_SERVER:-}" ] || [ -x "$command" ] || command=canal-server

exec "$command" stop --pid-file "$bin/canal.pid" "$@"
