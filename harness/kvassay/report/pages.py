"""Templates of the report and its relatives."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..judging.wording import about, describe, figure, owner, who


@cache
def _environment(markup: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("kvassay", "report/templates"),
        autoescape=markup,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"about": about, "describe": describe, "figure": figure, "owner": owner, "who": who}
    environment.filters |= filters
    return environment


def page(template: str, **values: Any) -> str:
    """A template filled in: HTML is escaped, other text is not."""
    return _environment(".html" in template).get_template(template).render(**values)
