"""Benchmarks over the history of commits: `nox -s asv`.

Beside times there are ratios to fp16 in the same rounds, and instruction counts, so that a history
survives a change of machine. Parameters are only ever appended, never taken from what is installed:
a target that cannot run here is n/a, and `Availability` keeps why.
"""
