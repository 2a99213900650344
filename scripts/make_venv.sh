#!/usr/bin/env bash
# Create a virtual environment with Python 3.11 or newer: scripts/make_venv.sh DIRECTORY
# PYTHON names the interpreter; unset, the first good one on PATH is taken.
set -euo pipefail

venv=${1:?usage: make_venv.sh DIRECTORY}

die() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '%s\n' "$@" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python=
for candidate in ${PYTHON:-python3 python python3.13 python3.12 python3.11}; do
    if new_enough "$candidate"; then
        python=$candidate
        break
    fi
done

if [ -z "$python" ]; then
    if [ -n "${PYTHON:-}" ]; then
        found=$("$PYTHON" --version 2>&1) || found="nothing that runs"
        die "PYTHON=$PYTHON is $found; Streamshed needs Python 3.11 or newer."
    fi
    found=$(python3 --version 2>&1) || found="no python3 at all"
    die "Streamshed needs Python 3.11 or newer; found on PATH: $found." \
        "Install one, then run: make setup PYTHON=/path/to/python3.11"
fi

if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    die "$python ($version) cannot create virtual environments: its venv or ensurepip module is missing." \
        "On Debian or Ubuntu: apt-get install python$version-venv" \
        "Elsewhere: install the full Python $version, or run: make setup PYTHON=/path/to/another/python3"
fi

echo "Creating $venv with $("$python" --version)"
# A venv that is half there (interpreter removed or upgraded) would be reused as it is.
"$python" -m venv --clear "$venv"
