"""What others may build on, a name a line: `python ci/public.py` writes docs/public.txt anew.

Python modules are public where docs/api.md shows them, C where a header declares it, JavaScript
where kvassay.d.ts does, and every command with its options. `--check` writes nothing, prints what
changed and fails; the tests run that, so that no public name changes unseen (docs/stability.md).
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import griffe

from kvassay.cli.parts.commands import command_names, whole_command

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / "docs" / "public.txt"
_ROOTS: Final = [str(ROOT / name) for name in ("harness", "backends", "suites")]
_MODULE: Final = re.compile(r"^::: (\S+)((?:\n {4}.*)*)", re.M)
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def python() -> Iterator[str]:
    """Functions, classes with their members, and constants of the modules in docs/api.md."""
    loader = griffe.GriffeLoader(search_paths=_ROOTS)
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name, options in _MODULE.findall(page):
        loader.load(name.partition(".")[0])
        module = loader.modules_collection[name]
        modules = [module]
        if "show_submodules" in options:
            modules += [one for one in module.modules.values() if not one.name.startswith("_")]
        for one in modules:
            yield from _members(one)


def _members(parent: griffe.Object) -> Iterator[str]:
    for member in parent.members.values():
        if member.is_alias or (member.name.startswith("_") and member.name != "__init__"):
            continue
        if isinstance(member, griffe.Class):
            bases = ", ".join(map(str, member.bases))
            yield f"class {member.path}({bases})"
            yield from _members(member)
        elif isinstance(member, griffe.Function):
            yield " ".join(f"{member.path}{_signature(member)}".split())
        elif isinstance(member, griffe.Attribute) and "instance-attribute" not in member.labels:
            told = member.annotation or f"= {member.value}"
            yield f"{member.path}: {told}"


def _signature(function: griffe.Function) -> str:
    whole = function.signature()
    return whole[whole.index("(") :]


def c() -> Iterator[str]:
    """Declarations and macros of the headers that are shipped beside the library."""
    for header in sorted((ROOT / "backends" / "src" / "include").glob("*.h")):
        text = _COMMENT.sub("", header.read_text(encoding="utf-8"))
        for name, value in re.findall(r"^#define (KV_\w+) (-?\w+)\s*$", text, re.M):
            yield f"{header.name}: #define {name} {value}"
        plain = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M)
        for record in re.findall(r"typedef struct \w+ \{.*?\} \w+;", plain, re.S):
            yield f"{header.name}: {' '.join(record.split())}"
        rest = re.sub(r"typedef struct \w+ \{.*?\} \w+;|extern \"C\" \{", "", plain, flags=re.S)
        for one in rest.split(";"):
            if "(" in one or one.split()[:1] == ["typedef"]:
                yield f"{header.name}: {' '.join(one.split())}"


def javascript() -> Iterator[str]:
    """The lines of the types that the npm package declares."""
    file = ROOT / "backends" / "kvassay_backends" / "js" / "kvassay.d.ts"
    for line in _COMMENT.sub("", file.read_text(encoding="utf-8")).splitlines():
        if re.search(r"\w", line):
            yield f"{file.name}: {' '.join(line.split())}"


def commands() -> Iterator[str]:
    """Commands and their arguments and options."""
    for name in sorted(command_names()):
        for one in whole_command(name).params:
            words = one.opts if one.param_type_name == "option" else [str(one.name).upper()]
            yield f"kvassay {name} {' / '.join(words)}"


def public() -> str:
    """The whole list."""
    parts = {"Python": python, "C": c, "JavaScript": javascript, "commands": commands}
    return "\n".join(line for title, part in parts.items() for line in (f"# {title}", *part(), ""))


def changes(kept: str, present: str) -> list[str]:
    """Lines of a difference, `-` what is gone and `+` what is new; empty where nothing changed."""
    compared = difflib.unified_diff(kept.splitlines(), present.splitlines(), lineterm="", n=0)
    return [line for line in compared if not re.match(r"---|\+\+\+|@@", line)]


def main() -> int:
    """Write the list, or check it; the exit status tells whether it was stale."""
    present = public()
    changed = changes(KEPT.read_text(encoding="utf-8") if KEPT.exists() else "", present)
    if "--check" in sys.argv[1:]:
        print("\n".join(changed) or "public names: as kept")
        return 1 if changed else 0
    KEPT.write_text(present, encoding="utf-8")
    print(f"public names: {len(changed)} lines changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
