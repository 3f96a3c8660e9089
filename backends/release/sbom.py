"""The bill of materials of a release, as CycloneDX: its files, and what they need."""

import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(.*)")


def bill(project: Mapping[str, Any], version: str, sums: Mapping[str, str], seconds: int) -> str:
    """JSON of the bill of `project` (of pyproject.toml); `sums` are the SHA-256 of the files.

    Requirements of the wheel are components with the range that it asks for, those of an extra
    optional. Nothing of others is inside of a file: the compiler is a tool, without a runtime of
    its own. Serial number and time follow from the sums and the commit.
    """
    bom = Bom()
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(sorted(sums.values())))
    bom.metadata.timestamp = datetime.fromtimestamp(seconds, UTC)
    bom.metadata.component = Component(
        name=project["name"],
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"{project['name']}@{version}",
        licenses=[LicenseExpression(project["license"])],
        components=[_file(name, digest) for name, digest in sorted(sums.items())],
    )
    compiler = [one for one in project["build"] if one.startswith("ziglang")]
    bom.metadata.tools = ToolRepository(components=_requirements(compiler, None))
    needed = _requirements(project["dependencies"], ComponentScope.REQUIRED)
    for extra in project["optional-dependencies"].values():
        needed += _requirements(extra, ComponentScope.OPTIONAL)
    for component in needed:
        bom.components.add(component)
    bom.register_dependency(bom.metadata.component, needed)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _file(name: str, digest: str) -> Component:
    sha256 = HashType(alg=HashAlgorithm.SHA_256, content=digest)
    return Component(name=name, type=ComponentType.FILE, bom_ref=name, hashes=[sha256])


def _requirements(lines: Iterable[str], scope: ComponentScope | None) -> list[Component]:
    made = []
    for line in lines:
        match = _REQUIREMENT.fullmatch(line.strip())
        assert match is not None, line
        name, asked = match.groups()
        purl = PackageURL("pypi", name=name)
        made.append(
            Component(name=name, version=asked, purl=purl, bom_ref=f"pypi:{name}", scope=scope)
        )
    return made


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """SHA256SUMS as `sha256sum --check` reads it."""
    lines = [f"{digest}  {name}\n" for name, digest in sorted(sums.items())]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
