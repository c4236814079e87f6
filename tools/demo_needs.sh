#!/bin/sh
# Reports in one line what `make demo` needs and this machine lacks. Arguments: the Python
# that makes the virtual environment, and the folder of that environment.
set -u
python=$1 venv=$2

missing='' packages=''
needs() {
    missing="$missing${missing:+, }$1"
    packages="$packages $2"
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    needs "Python 3.11 or later (PYTHON=… names one)" "python3 python3-venv python3-dev"
elif [ ! -e "$venv/installed" ]; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || needs venv python3-venv
    "$python" -c 'import os, sysconfig as s
os.stat(s.get_path("include") + "/Python.h")' 2>/dev/null ||
        needs "the headers of Python" python3-dev
fi
[ -e "$venv/installed" ] || command -v cc >/dev/null ||
    needs "a C compiler" build-essential
command -v setpriv >/dev/null || needs setpriv util-linux

if [ -n "$missing" ]; then
    echo "demo: missing: $missing. As root: apt-get install$packages" >&2
    exit 1
fi
[ -e "$venv/installed" ] ||
    echo "Compiling the package into $venv first, which takes some minutes."
