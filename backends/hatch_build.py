"""Builds the C library, the WebAssembly modules and, where there is a cargo, the Rust library.

As a hatchling hook it runs in every wheel build and every `pip install`, editable or not; as a
script (`python backends/hatch_build.py`) it rebuilds all in a checkout, in place. What is built and
how is in the folder `build`.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "build"))

import library
import rust
from recipe import BACKENDS, HEADERS, NATIVE, RECORD, WASM, BuildError, host_target, wanted_target


class NativeBuildHook(BuildHookInterface[Any]):
    """Compiles everything before a wheel is put together and marks the wheel for its platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build in place; `version` is "standard" or "editable", and both need what is built."""
        target = wanted_target()
        output = NATIVE / "_lib"
        record = library.build(target, output)
        self.app.display_info(f"built {target.library} {record['build_id']} ({target.triple})")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{target.wheel_tag}"
        made = [output / name for name in (target.library, *HEADERS, RECORD)]
        modules = library.build_wasm(WASM / "_lib")["modules"]
        assert isinstance(modules, dict)
        made += [WASM / "_lib" / module["file"] for module in modules.values()]
        made.append(WASM / "_lib" / RECORD)
        built = rust.build(target.triple, target == host_target())
        self.app.display_info(f"Rust library: {built.get('build_id') or built['reason']}")
        made += [rust.OUTPUT / name for name in (RECORD, built.get("library")) if name]
        build_data["artifacts"] += [str(path.relative_to(BACKENDS.parent)) for path in made]


def main() -> int:
    """Rebuild what this checkout has; of it only what is named: `native`, `wasm`, `rust`."""
    wanted = sys.argv[1:] or ["native", "wasm", "rust"]
    try:
        if "native" in wanted:
            record = library.build(host_target(), NATIVE / "_lib")
            print(f"{NATIVE / '_lib' / str(record['library'])}\nbuild id {record['build_id']}")
        if "wasm" in wanted:
            record = library.build_wasm(WASM / "_lib")
            print(f"{WASM / '_lib'}\nbuild id {record['build_id']}")
        if "rust" in wanted:
            built = rust.build(host_target().triple, here=True)
            print(f"{rust.OUTPUT}\nRust: {built.get('build_id') or built['reason']}")
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
