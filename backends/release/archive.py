"""Archives that are the same bytes wherever and whenever they are made."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def write_tar(output: Path, files: Mapping[str, bytes], seconds: int) -> Path:
    """A tar.gz of `files` by path within it, in order of path, all of them as old as `seconds`.

    Owner, mode and times are fixed: what a disk or a clock says of a file is not part of it.
    """
    with (
        output.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=seconds, fileobj=raw) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), seconds, 0o644
            tar.addfile(info, io.BytesIO(content))
    return output
