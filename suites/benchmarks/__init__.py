"""Benchmarks over the history of commits: `nox -s asv`.

Beside times there are ratios to fp16 in the same rounds, and instruction counts of the WebAssembly
modules, so that a history survives a change of machine. Parameters are only ever appended, never
taken from what is installed: a backend that cannot run here shows as n/a, with the reason in asv's
log.
"""
