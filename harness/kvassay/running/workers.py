"""Worker processes that a measurement may crash, hang or corrupt without hurting another.

A `concurrent.futures.Executor`: each call runs alone in a worker, so a worker that dies names the
call that killed it, and a call that takes too long is killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import queue
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil

from .shared import share_in

T = TypeVar("T")
Job = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]

#: What limits the threads of numpy's linear algebra; read once, when numpy is imported.
THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_STDERR_TAIL: Final = 2000
_environment_lock = threading.Lock()


class WorkerDied(Exception):
    """The process ended while it ran the call: `how` says by which signal or status."""

    def __init__(self, how: str, stderr: str = "") -> None:
        super().__init__(how)
        self.how = how
        self.stderr = stderr


class WorkerTimeout(Exception):
    """The call took longer than allowed, and its process was killed."""


def cores() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_jobs() -> int:
    """Worker processes by default: two at most, since measurements disturb each other."""
    return min(2, cores())


class IsolatedPool(Executor):
    """`jobs` worker processes, started by spawn; `timeout` in seconds limits each call."""

    def __init__(self, jobs: int, timeout: float | None = None) -> None:
        self._calls: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="kvassay-")
        self._stopping = threading.Event()
        threads = max(1, cores() // jobs)
        self._workers = [
            _Worker(self._calls, self._stopping, timeout, threads, Path(self._folder.name), i)
            for i in range(jobs)
        ]
        for worker in self._workers:
            worker.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run the call in a worker; its future may raise WorkerDied or WorkerTimeout."""
        if self._stopping.is_set():
            raise RuntimeError("the pool was shut down")
        future: Future[T] = Future()
        self._calls.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the workers: after the calls in the queue, or at once with `cancel_futures`."""
        if cancel_futures:
            self._stopping.set()
            with contextlib.suppress(queue.Empty):
                while job := self._calls.get_nowait():
                    job[0].cancel()
            for worker in self._workers:
                worker.kill()
        for _ in self._workers:
            self._calls.put(None)
        if wait:
            for worker in self._workers:
                worker.join()
            self._folder.cleanup()
        self._stopping.set()


class _Worker(threading.Thread):
    """A thread that feeds one process at a time and replaces it when it dies."""

    def __init__(
        self,
        calls: queue.SimpleQueue[Job | None],
        stopping: threading.Event,
        timeout: float | None,
        threads: int,
        folder: Path,
        number: int,
    ) -> None:
        super().__init__(daemon=True)
        self._calls = calls
        self._stopping = stopping
        self._timeout = timeout
        self._threads = threads
        self._stderr = folder / str(number)
        self._shared = folder / "shared"
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def run(self) -> None:
        while (job := self._calls.get()) is not None:
            future, *call = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                good, answer = self._ask(call)
            except Exception as error:
                good, answer = False, error
            if good:
                future.set_result(answer)
            else:
                future.set_exception(answer)
        self._end()

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        process = self._process
        if process is not None and process.pid is not None:
            _kill_tree(process.pid)

    def _ask(self, call: list[Any]) -> tuple[bool, Any]:
        try:
            pipe = self._pipe or self._begin()
            # Only now is there a process that a later kill() finds.
            if self._stopping.is_set():
                self._end(kill=True)
                raise WorkerDied("stopped")
            pipe.send(call)
            if not pipe.poll(self._timeout):
                self._end(kill=True)
                raise WorkerTimeout(f"took longer than {self._timeout:g} s")
            answer: tuple[bool, Any] = pipe.recv()
            return answer
        except (EOFError, OSError):
            how = self._end()
            raise WorkerDied(how, self._tail()) from None

    def _begin(self) -> Connection:
        """Start a process and wait until it is ready, so that a timeout covers the call alone."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        folders = (str(self._stderr), self._shared)
        self._process = context.Process(target=_serve, args=(theirs, *folders))
        with _limited_threads(self._threads):
            self._process.start()
        theirs.close()
        self._pipe.recv()
        return self._pipe

    def _end(self, kill: bool = False) -> str:
        """Close the pipe, which ends an idle process, and say how it ended."""
        pipe, process = self._pipe, self._process
        self._pipe = self._process = None
        if pipe is None or process is None:
            return ""
        if kill and process.pid is not None:
            _kill_tree(process.pid)
        pipe.close()
        process.join()
        code = process.exitcode or 0
        process.close()
        return f"signal {-code}, {_signal_name(-code)}" if code < 0 else f"exit status {code}"

    def _tail(self) -> str:
        with contextlib.suppress(OSError):
            return self._stderr.read_text(errors="replace")[-_STDERR_TAIL:]
        return ""


def _kill_tree(pid: int) -> None:
    """Kill a process and those it started: a measurement may run in a process of its own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        worker = psutil.Process(pid)
        for process in [*worker.children(recursive=True), worker]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


@contextlib.contextmanager
def _limited_threads(threads: int) -> Iterator[None]:
    """Children inherit the environment as it is when they start."""
    with _environment_lock:
        saved = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
        try:
            yield
        finally:
            for name, value in saved.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _serve(pipe: Connection, stderr: str, shared: Path) -> None:
    """The worker process: answer calls until the pipe closes.

    Ctrl-C is the parent's business. What native code prints goes to a file, so that a crash leaves
    its last words and a progress bar stays whole.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(stderr, "w", buffering=1, encoding="utf-8", errors="replace") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        faulthandler.enable(stream)
        share_in(shared)
        pipe.send("ready")
        with contextlib.suppress(EOFError, BrokenPipeError):
            while True:
                function, arguments, keywords = pipe.recv()
                pipe.send(_call(function, arguments, keywords))


def _call(function: Callable[..., Any], arguments: Any, keywords: Any) -> tuple[bool, Any]:
    try:
        return True, function(*arguments, **keywords)
    except Exception as error:
        try:
            return False, pickle.loads(pickle.dumps(error))
        except Exception:  # an exception that does not survive the way back
            return False, RuntimeError(f"{type(error).__name__}: {error}")
