"""The one error of the oracle."""


class OracleError(Exception):
    """Bytes that are not what docs/page-format.md describes; the message names the first fault."""
