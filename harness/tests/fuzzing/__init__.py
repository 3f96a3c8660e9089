"""Fuzzing of the readers in Python, and the inputs that are replayed by the tests."""
