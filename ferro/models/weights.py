"""Tensors of a file as kernels take them: ``Q8`` or ``Q4`` matrices, or float32 arrays, turned or
not.

Q8_0 is taken as it is, bit for bit. Types of few levels keep their grid (``levels.py``); every
other type becomes float32 exactly and then Q8_0 by the rule of ``Q8.quantize``. Only matrices of
weights are quantised: vectors, scalars, biases and the taps of convolutions stay float32. Works on
chunks of rows that fit in a processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ferro.dsl.quantised import BLOCK, Q4, Q8, padded_cols, quantize_planes
from ferro.models import dequantise
from ferro.models.errors import BadNumbers, UnsupportedType, WrongShape
from ferro.models.gguf import Bytes, GgufFile
from ferro.models.gguf_header import TensorInfo
from ferro.models.levels import Levels

CHUNK = 1 << 17  # values: planes of float32 and their copies stay in the second-level cache
TAPS = "conv.weight"
SMALL = ("Q4_0", "Q4_1", "Q4_K")  # types of 4 bits

Tensors = str | Sequence[str | TensorInfo]

Q8_0 = np.dtype([("scale", "<f2"), ("q", f"V{BLOCK}")])


def is_matrix(info: TensorInfo) -> bool:
    """True for what is kept as Q8: a matrix of weights that are no taps of a convolution."""
    named = info.name.endswith(".weight") and not info.name.endswith(TAPS)
    return named and len(info.shape) == 2


def check_type(file: GgufFile, info: TensorInfo) -> None:
    """Raises UnsupportedType for a tensor that cannot be read."""
    if info.kind.name not in dequantise.TYPES:
        known = ", ".join(dequantise.TYPES)
        raise UnsupportedType(
            str(file.path),
            f"tensor `{info.name}` has the type {info.kind}, which is not supported "
            f"(supported: {known})",
        )


def f32(file: GgufFile, names: Tensors) -> npt.NDArray[np.float32]:
    """A tensor as float32 of its own shape, or the rows of several one after the other. Here and
    below tensors are named, or given as what is known of them (or of some of their rows).

    Raises MissingTensor, UnsupportedType, WrongShape, and BadNumbers for values that are not
    finite.
    """
    infos = _infos(file, names)
    first = infos[0].shape
    for info in infos[1:]:
        if info.shape[1:] != first[1:]:
            raise WrongShape(
                str(file.path),
                f"tensor `{info.name}` of shape {list(info.shape)} does not go with {list(first)}",
            )
    shape = (sum(info.shape[0] for info in infos), *first[1:]) if first else first
    out = np.empty(shape, np.float32)
    values = out.reshape(-1)
    start = 0
    for info in infos:
        _dequantise(file, info, values[start : start + info.size])
        start += info.size
    return out


def turned(file: GgufFile, names: Tensors) -> npt.NDArray[np.float32]:
    """A matrix as float32 [columns, rows], or several of equal width side by side.

    Raises MissingTensor, UnsupportedType, WrongShape, and BadNumbers for values that are not
    finite.
    """
    infos = _infos(file, names)
    out = np.empty((_common_cols(file, infos), sum(info.shape[0] for info in infos)), np.float32)
    first = 0
    for info in infos:
        blocks = file.blocks(info)
        for part in _chunks(*info.shape):
            columns = slice(first + part.start, first + part.stop)
            out[:, columns] = _finite(file, info, blocks[part]).T
        file.drop(info)
        first += info.shape[0]
    return out


def q8(file: GgufFile, names: Tensors) -> Q8:
    """A matrix, or the rows of several matrices of equal width one after the other.

    Raises MissingTensor, UnsupportedType, WrongShape, and BadNumbers for values that are not
    finite or too large for Q8_0.
    """
    infos = _infos(file, names)
    cols = _common_cols(file, infos)
    rows = sum(info.shape[0] for info in infos)
    q = np.empty((rows, padded_cols(cols)), np.int8)
    scale = np.empty((rows, padded_cols(cols) // BLOCK), np.float16)
    first = 0
    for info in infos:
        last = first + info.shape[0]
        _fill(file, info, q[first:last], scale[first:last])
        file.drop(info)
        first = last
    return Q8(q, scale, cols)


def is_small(file: GgufFile, names: Sequence[str]) -> bool:
    """True for matrices that all have 4 bits in the file. Raises MissingTensor."""
    return all(file.tensor(name).kind.name in SMALL for name in names)


def q4(file: GgufFile, names: Tensors) -> Q4:
    """A matrix of a type of ``SMALL``, or the rows of several of equal width one after the other.

    Values are taken as they are; scales and minima of Q4_K, products of two numbers each, are
    rounded to float16. Raises MissingTensor, UnsupportedType, WrongShape, and BadNumbers for scales
    that are not finite.
    """
    infos = _infos(file, names)
    cols = _common_cols(file, infos)
    rows = sum(info.shape[0] for info in infos)
    q = np.empty((rows, cols), np.int8)
    scale, minimum = np.empty((2, rows, cols // BLOCK), np.float16)
    first = 0
    for info in infos:
        blocks = file.blocks(info)
        for part in _chunks(*info.shape):
            here = slice(first + part.start, first + part.stop)
            _take_levels(blocks[part], info, q[here], scale[here], minimum[here])
        last = first + info.shape[0]
        if not (np.isfinite(scale[first:last]).all() and np.isfinite(minimum[first:last]).all()):
            raise BadNumbers(str(file.path), f"tensor `{info.name}` has scales that are not finite")
        file.drop(info)
        first = last
    return Q4(q, scale, minimum, cols)


def _infos(file: GgufFile, names: Tensors) -> list[TensorInfo]:
    each = [names] if isinstance(names, str) else names
    infos = [file.tensor(name) if isinstance(name, str) else name for name in each]
    for info in infos:
        check_type(file, info)
    return infos


def _dequantise(file: GgufFile, info: TensorInfo, out: npt.NDArray[np.float32]) -> None:
    blocks = file.blocks(info)
    rows = out.reshape(len(blocks), -1)
    for part in _chunks(*rows.shape):
        rows[part] = _finite(file, info, blocks[part])
    file.drop(info)


def _finite(file: GgufFile, info: TensorInfo, blocks: Bytes) -> npt.NDArray[np.float32]:
    with np.errstate(invalid="ignore", over="ignore"):
        values = dequantise.dequantise(blocks, info.kind.name)
    if not np.isfinite(values).all():
        raise BadNumbers(str(file.path), f"tensor `{info.name}` has values that are not finite")
    return values


def _common_cols(file: GgufFile, infos: Sequence[TensorInfo]) -> int:
    for info in infos:
        if len(info.shape) != 2 or info.shape[1] != infos[0].shape[-1]:
            raise WrongShape(
                str(file.path),
                f"tensor `{info.name}` of shape {list(info.shape)} is no matrix "
                f"with {infos[0].shape[-1]} columns",
            )
    return infos[0].shape[1]


def _fill(
    file: GgufFile, info: TensorInfo, q: npt.NDArray[np.int8], scale: npt.NDArray[np.float16]
) -> None:
    blocks = file.blocks(info)
    try:
        for part in _chunks(*info.shape):
            if info.kind.name == "Q8_0":
                _take(blocks[part], q[part], scale[part])
            elif info.shape[1] % BLOCK:
                padded = Q8.quantize(dequantise.dequantise(blocks[part], info.kind.name))
                q[part], scale[part] = padded.q, padded.scale
            else:
                _requantise(blocks[part], info, q[part], scale[part])
    except ValueError as error:
        problem = str(error).removeprefix("Q8.quantize: ")
        raise BadNumbers(str(file.path), f"tensor `{info.name}`: {problem}") from None


def _take(blocks: Bytes, q: npt.NDArray[np.int8], scale: npt.NDArray[np.float16]) -> None:
    pairs = blocks.reshape(len(blocks), -1).view(Q8_0)
    if not np.isfinite(pairs["scale"]).all():
        raise ValueError("the matrix has values that are not finite")
    scale[...] = pairs["scale"]
    q.view(Q8_0["q"])[...] = pairs["q"]


def _requantise(
    blocks: Bytes, info: TensorInfo, q: npt.NDArray[np.int8], scale: npt.NDArray[np.float16]
) -> None:
    values = math.lcm(info.kind.values, BLOCK)
    size = values // info.kind.values * info.kind.nbytes
    flat, kind = blocks.reshape(-1, size), info.kind.name
    groups = values // BLOCK
    by_block, scales = q.reshape(-1, groups, BLOCK), scale.reshape(-1, groups)
    with np.errstate(invalid="ignore", over="ignore"):
        rest = _keep_levels(dequantise.levels(flat, kind), by_block, scales)
        rows = rest.any(axis=1)
        planes = dequantise.planes(flat[rows], kind)
    for group, part in enumerate(planes.reshape(groups, BLOCK, -1) if planes.size else ()):
        chosen = rest[:, group]
        turned, scales[chosen, group] = quantize_planes(part[:, chosen[rows]])
        by_block[chosen, group] = turned.T


def _keep_levels(
    groups: Sequence[Levels], q: npt.NDArray[np.int8], scale: npt.NDArray[np.float16]
) -> npt.NDArray[np.bool_]:
    """Fill blocks that have levels; gives those that remain to be filled, [n, groups]."""
    rest = np.ones(scale.shape, np.bool_)
    for group, levels in enumerate(groups):
        turned, scale[:, group], served = levels.quantise()
        q[:, group] = turned.T
        rest[:, group] = ~served
    return rest


def _take_levels(
    blocks: Bytes,
    info: TensorInfo,
    q: npt.NDArray[np.int8],
    scale: npt.NDArray[np.float16],
    minimum: npt.NDArray[np.float16],
) -> None:
    with np.errstate(invalid="ignore", over="ignore"):
        groups = dequantise.levels(blocks.reshape(-1, info.kind.nbytes), info.kind.name)
        by_block = q.reshape(-1, len(groups), BLOCK)
        for group, levels in enumerate(groups):
            by_block[:, group] = levels.q.T
            scale.reshape(-1, len(groups))[:, group] = levels.step
            minimum.reshape(-1, len(groups))[:, group] = levels.least


def _chunks(rows: int, cols: int) -> Iterator[slice]:
    step = max(1, CHUNK // max(cols, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
