"""The errors of the oracle."""


class OracleError(Exception):
    """Bytes that are not what docs/page-format.md describes; the message names the first fault."""


class OtherCacheError(OracleError):
    """Bytes that belong to another cache; `field` is the first differing field."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field
