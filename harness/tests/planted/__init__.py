"""Backends with one planted fault each: what the gate must reject, and by which rule.

Every class wraps the native backend and is named as `broken.MODULE:CLASS`. `kit.py` lists them
with the rule meant for each. A class whose name begins with `Bounded` has the same fault, but
declares a bound so wide that no comparison of bits or errors with the reference can help.
"""
