"""Browser: the WebAssembly modules inside Chromium, Firefox and Node, as pages load them.

Engines are started only in the scope `browser`; elsewhere the suite says which there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kvassay.assets.web import web_assets
from kvassay.suite import Request, Suite, Target, Task

from .engines import ENGINES

SCOPE: Final = "browser"
STAGE: Final = "browser"
#: Groups of engines that are measured together: what one browser lacks another may have.
GROUPS: Final = ("browsers", "node")
_FUNCTIONS: Final = {"parity": 30.0, "sessions": 5.0, "speed": 10.0}


class BrowserSuite(Suite):
    """Every target that brings modules for the web, in every engine of this machine."""

    name = "browser"
    command_scope = "browser"
    every_variant = True

    def tasks(self, request: Request) -> Sequence[Task]:
        """One task that lists the engines; in scope `browser`, three a target and group."""
        tasks = [
            Task(
                suite=self.name,
                label="engines",
                function="kvassay_suites.browser.measure:list_engines",
                arguments={"names": list(ENGINES)},
            )
        ]
        if request.scope == SCOPE:
            known = web_assets()
            targets = [target for target in request.targets if target.backend in known]
            for target in targets:
                tasks += _tasks(target, request)
        return tasks


def _tasks(target: Target, request: Request) -> list[Task]:
    return [
        _task(target, name, group, weight, depth=request.depth, presets=list(request.presets))
        for group in GROUPS
        for name, weight in _FUNCTIONS.items()
    ]


def _task(target: Target, name: str, group: str, weight: float, **arguments: Any) -> Task:
    return Task(
        suite="browser",
        label=f"{name} in {group}",
        function=f"kvassay_suites.browser.measure:measure_{name}",
        arguments={
            "backend": target.backend,
            "variant": target.variant,
            "group": group,
            **arguments,
        },
        target=target,
        stage=STAGE,
        weight=weight,
    )


suite = BrowserSuite()
