"""A float64 reading of pages and dumps, written from docs/page-format.md and
docs/numeric-contract.md.

It shares no code with any backend nor with the harness: what it decodes is what the documents
say, in float64 throughout, with dense matrices where the backends use butterflies and with bit
addresses where they use shifts. Two errors follow from it: a backend's output against attention on
the original floats (total error), and against attention on the decoded codes (error of the
contract's own arithmetic).
"""

from .attention import attend64, scores64
from .check import check_dump
from .dump import CacheState, Dump, LayerState, decode_cache, read_dump
from .edit import flip_code, flip_token, put_number, put_token
from .errors import OracleError, OtherCacheError
from .page import Page, read_page
from .rotation import rotation

__all__ = [
    "CacheState",
    "Dump",
    "LayerState",
    "OracleError",
    "OtherCacheError",
    "Page",
    "attend64",
    "check_dump",
    "decode_cache",
    "flip_code",
    "flip_token",
    "put_number",
    "put_token",
    "read_dump",
    "read_page",
    "rotation",
    "scores64",
]
