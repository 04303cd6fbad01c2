#!/usr/bin/env bash
# Makes .venv and fetches what Spark needs. `setup.sh` sets up, `setup.sh java` downloads a Java into .jdk.
# Repeated, it changes nothing. The environment variables PYTHON, JAVA_HOME and VECLINK_FETCH_JAVA=1 steer it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

INPUTS=(pyproject.toml deploy/constraints.txt deploy/setup.sh)
EXTRAS="spark,cpu,report,dev"
STAMP=.venv/.veclink-setup

supported() { # does $1 run, and is it Python 3.11 or 3.12?
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null
}

fits() { # can $1 make virtual environments of ours?
    supported "$1" && "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        if fits "$PYTHON"; then echo "$PYTHON"; return; fi
        echo "PYTHON=$PYTHON is not a Python 3.11 or 3.12 with the venv module." >&2
        return 2
    fi
    for candidate in python3 python3.12 python3.11 "$HOME"/.pyenv/versions/3.1[12].*/bin/python3; do
        if fits "$candidate"; then echo "$candidate"; return; fi
    done
    echo "No Python 3.11 or 3.12 found: install one (for example 'apt-get install python3.11 python3.11-venv')," \
        "or name it: PYTHON=/path/to/python3.11 make setup" >&2
    return 2
}

java_tool() { # lib/veclink/java.py needs the standard library only, so it runs before anything is installed
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="lib${tools:+:$tools}" "$python" -m veclink.java "$1" .
}

fetch_java() {
    tools=$(mktemp -d)
    trap 'rm -rf "$tools"' EXIT
    echo "Fetching Java 17 into .jdk ..." >&2
    if ! "$python" -m pip install --quiet --disable-pip-version-check --target "$tools" install-jdk 2>/dev/null; then
        echo "The package install-jdk cannot be had from the Python index. Install Java 17 or 21 by hand." >&2
        return 2
    fi
    java_tool fetch
}

need_java() {
    local problem answer=n
    if problem=$(java_tool check 2>&1 >/dev/null); then return; fi
    if [ "${VECLINK_FETCH_JAVA:-}" = 1 ]; then
        answer=y
    elif [ -t 0 ] && [ -t 2 ]; then
        echo "$problem" >&2
        read -r -p "Download Java 17 into $PWD/.jdk now? [y/N] " answer
        [[ $answer = [yY]* ]] || return 2
    fi
    if [[ $answer = [yY]* ]]; then fetch_java; return; fi
    echo "$problem" >&2
    return 2
}

make_venv() { # keeps a usable .venv; replaces one only if it is ours
    if supported .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; then
        # The scripts of a moved environment still name its old folder.
        if [ ! -e "$STAMP" ] || [ "$(tail -n 1 "$STAMP")" = "$PWD" ]; then return; fi
    elif [ -e .venv ] && [ ! -e "$STAMP" ]; then
        echo "The folder .venv is not a virtual environment of Python 3.11 or 3.12 with pip: move it away." >&2
        return 2
    fi
    python=$(find_python)
    rm -rf .venv
    mkdir .venv
    echo unfinished >"$STAMP"
    "$python" -m venv .venv
}

install() {
    make_venv
    echo "Installing into .venv (half a gigabyte the first time: some minutes) ..." >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c deploy/constraints.txt -e ".[$EXTRAS]"
    printf '%s\n' "$inputs" >"$STAMP"
}

python=.venv/bin/python
supported "$python" || python=$(find_python)
if [ "${1:-setup}" = java ]; then fetch_java; exit; fi
need_java
inputs=$(cksum "${INPUTS[@]}"; pwd)
if ! supported .venv/bin/python || [ "$(cat "$STAMP" 2>/dev/null)" != "$inputs" ]; then install; fi
.venv/bin/python -m veclink.local_spark
