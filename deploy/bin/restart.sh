#!/bin/sh
# Stops the server if it runs, and starts it. Options are those of startup.sh.
set -eu

bin=$(dirname "$(readlink -f "$0")")
# If the server does not stop in time, it still holds the file: then startup.sh fails.
[ ! -e "$bin/canal.pid" ] || "$bin/stop.sh" || true
exec "$bin/startup.sh" "$@"
