#!/usr/bin/env bash
# Run nox sessions of this repository from a fresh checkout: ci/session.sh lint types
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(command -v python3.11 || command -v python3)
[ -x .venv/bin/nox ] || { "$python" -m venv .venv && .venv/bin/pip install -q nox; }
exec .venv/bin/nox -s "$@"
