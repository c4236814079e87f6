#!/bin/sh
# Starts canal-server in the background: settings in ../conf, log in ../logs, process id
# in canal.pid. Options are passed on to `canal-server start`.
#
# The command is $CANAL_SERVER, else that of ../venv, else the one of $PATH.
set -eu

bin=$(dirname "$(readlink -f "$0")")
base=$(dirname "$bin")
command=${CANAL_SERVER:-$base/venv/bin/canal-server}
[ -n "${CANAL_SERVER:-}" ] || [ -x "$command" ] || command=canal-server

exec "$command" start --daemon --pid-file "$bin/canal.pid" \
    --conf "$base/conf" --log-dir "$base/logs" "$@"
