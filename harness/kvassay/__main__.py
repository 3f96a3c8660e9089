"""`python -m kvassay` is the command `kvassay`."""

from .cli import main

main()
