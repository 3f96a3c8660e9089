"""Where two backends first differ: layer, page, stage, head, token, channel, both values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..oracle import dump as dumps
from ..oracle import page as pages
from ..oracle.errors import OracleError

Where = dict[str, Any]


def in_page(truth: bytes, found: bytes) -> Where:
    """The first difference of two pages that are not equal."""
    if len(truth) != len(found):
        return {"stage": "page size", "expected": len(truth), "found": len(found)}
    header, other = pages.header_of(truth), pages.header_of(found)
    for name in pages.FIELDS:
        if header[name] != other[name] and name != "crc":
            return {"stage": f"header {name}", "expected": header[name], "found": other[name]}
    left, right = pages.as_laid_out(truth, header), pages.as_laid_out(found, header)
    for name in left.streams:
        mine, theirs = _bits(left.raw(name)), _bits(right.raw(name))
        if (mine != theirs).any():
            return {"stage": name, **_entry(name, header, mine, theirs)}
    return _byte("padding or crc", truth, found)


def _entry(name: str, header: dict[str, Any], truth: NDArray[Any], found: NDArray[Any]) -> Where:
    """Axes of a stream by name; a group axis is given by its first token or channel."""
    index = tuple(int(i) for i in np.argwhere(truth != found)[0])
    if name in ("key steps", "key minima"):
        axes = {"token": 32 * index[1], "channel": index[2]}
    elif name in ("value steps", "value minima"):
        axes = {"channel": 32 * index[1], "token": index[2]}
    elif name == "key mean":
        axes = {"channel": index[1]}
    else:
        axes = dict(zip(("token", "channel"), index[1:], strict=False))
    if "token" in axes:
        axes["token"] += header["token_start"]
    return {"head": index[0], **axes, "expected": _hex(truth[index]), "found": _hex(found[index])}


def in_dump(truth: bytes, found: bytes) -> Where:
    """The first difference of two dumps that are not equal and whose pages are equal."""
    if len(truth) != len(found):
        return {"stage": "dump size", "expected": len(truth), "found": len(found)}
    try:
        dump = dumps.read_dump(truth)
    except OracleError as error:
        return {"stage": f"the reference's dump cannot be read: {error}"}
    for number, layer in enumerate(dump.layers):
        for section in layer.sections.values():
            count = int(np.prod(section.shape))
            mine, theirs = (
                np.frombuffer(data, "<u2", count, section.offset).reshape(section.shape)
                for data in (truth, found)
            )
            if (mine != theirs).any():
                index = tuple(int(i) for i in np.argwhere(mine != theirs)[0])
                names = ("head", "token", "channel") if len(index) == 3 else ("head", "channel")
                axes = dict(zip(names, index, strict=True))
                values = {"expected": _hex(mine[index]), "found": _hex(theirs[index])}
                return {"stage": section.name, "layer": number, **axes, **values}
    return _byte("dump header, identity text or layer record", truth, found)


def in_array(
    names: tuple[str, ...], truth: NDArray[np.float32], found: NDArray[np.float32]
) -> Where:
    """The first entry whose bits differ; `names` are the axes."""
    if truth.shape != found.shape:
        return {"expected": list(truth.shape), "found": list(found.shape)}
    mine, theirs = _bits(truth), _bits(found)
    index = tuple(int(i) for i in np.argwhere(mine != theirs)[0])
    return {
        **dict(zip(names, index, strict=True)),
        "expected": _hex(mine[index]),
        "found": _hex(theirs[index]),
        "expected_value": float(truth[index]),
        "found_value": float(found[index]),
    }


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "f" else array


def _hex(value: Any) -> str:
    return f"{int(value):#x}"


def _byte(stage: str, truth: bytes, found: bytes) -> Where:
    mine, theirs = np.frombuffer(truth, np.uint8), np.frombuffer(found, np.uint8)
    at = int(np.flatnonzero(mine != theirs)[0])
    return {"stage": stage, "byte": at, "expected": _hex(mine[at]), "found": _hex(theirs[at])}
