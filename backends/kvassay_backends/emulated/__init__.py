"""Variants of the native library for another machine, run under an emulator.

The library is linked into a small server (backends/src/server) that an emulator of user programs
runs; what crosses the pipes is what the functions of kvassay.h take and give.
"""
