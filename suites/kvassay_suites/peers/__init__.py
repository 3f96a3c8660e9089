"""kvassay side by side with other people's attention, caches and vector scans, in one run.

    python -m kvassay_suites.peers --case decode-128-4096 --threads 1 2

A **case** (`cases`) is a shape and what is done with it. A **peer** is one file here that offers
some **types** of its own for a case. Each peer runs in a process of its own, pinned to as many
cores as it has threads; its result is held against float64 before it is timed, and the processes
take turns (`rounds`). Tables and targets are made from the records alone. Not a suite of the gate:
timings judge no backend.
"""
