"""The reference backend: the numeric contract of docs/ in numpy, one file a section, written for
reading.

It shares no code with any other backend. Where another backend differs from it, the contract
decides who is wrong.
"""

from .backend import ReferenceBackend, ReferenceProvider

backend = ReferenceProvider()

__all__ = ["ReferenceBackend", "ReferenceProvider", "backend"]
