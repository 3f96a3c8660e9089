"""Prints the folder of the C headers: `cc -I"$(python -m kvassay_backends.native)" ...`."""

from . import include_dir

print(include_dir())
