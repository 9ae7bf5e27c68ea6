"""A GGUF file: metadata by string keys, tensors as views of the mapped file."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ferro.models import gguf_header
from ferro.models.errors import MissingTensor, NotGguf
from ferro.models.gguf_header import TensorInfo
from ferro.models.gguf_metadata import Metadata

Bytes = npt.NDArray[np.uint8]


class GgufFile:
    """An open model file; ``metadata`` and ``tensors`` are checked, data is read when asked for.

    The file must not be changed while it is open.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Maps ``path`` and reads its header. Raises ModelError, FileNotFoundError and such."""
        self.path = Path(path)
        self._map = _mapped(self.path)
        header = gguf_header.read(str(path), self._map)
        self.version = header.version
        self.metadata = Metadata(str(path), header.metadata)
        self.tensors = header.tensors

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return len(self._map)

    def __repr__(self) -> str:
        return f"GgufFile({str(self.path)!r}, {len(self.tensors)} tensors)"

    def tensor(self, name: str) -> TensorInfo:
        """What is known of a tensor. Raises MissingTensor."""
        if name not in self.tensors:
            raise MissingTensor(str(self.path), f"the tensor `{name}` is missing")
        return self.tensors[name]

    def blocks(self, info: TensorInfo) -> Bytes:
        """A tensor's bytes in the mapped file: uint8 [rows, blocks a row, bytes a block], where
        all axes but the last count as rows. Read-only."""
        per_row = info.shape[-1] // info.kind.values if info.shape else 1
        whole = np.frombuffer(self._map, np.uint8, info.nbytes, info.start)
        return whole.reshape(-1, per_row, info.kind.nbytes)

    def drop(self, info: TensorInfo) -> None:
        """Let go of the memory that the pages of a tensor take; they can be read again."""
        start = info.start // mmap.PAGESIZE * mmap.PAGESIZE
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, info.stop - start)


def _mapped(path: Path) -> mmap.mmap:
    # a pipe would block in open(), a device has no end
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise NotGguf(str(path), "not a GGUF file (it is no regular file)")
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise NotGguf(str(path), "not a GGUF file (it is empty)")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
