"""Moving a model's weights onto a device: several tensors at a time, the largest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from ferro import system
from ferro.codegen.layouts import q4_bytes, q8_bytes
from ferro.codegen.program import Config, Target
from ferro.dsl.quantised import Q4, Q8
from ferro.models import weights
from ferro.models.gguf import GgufFile
from ferro.models.gguf_header import TensorInfo
from ferro.report import Progress
from ferro.runtime.device import Device
from ferro.runtime.errors import OutOfMemory
from ferro.runtime.memory import megabytes

FORMS = ("q4", "q8", "f32")
PACKED: dict[str, Callable[[GgufFile, Sequence[TensorInfo]], Q8 | Q4]] = {
    "q8": weights.q8,
    "q4": weights.q4,
}
MEGA = 10**6
WORKERS = 2
SHOW_AFTER = 1.0  # seconds


@dataclass(frozen=True)
class Part:
    """What a device keeps under one name: a tensor, or the rows of several one after the other.

    ``form`` is "q8" (matrices only), "q4" (matrices that have 4 bits in the file), "f32", or
    "turned" (matrices only): float32 with a row of the file in each column, as float32 products
    read it. ``config`` names the layout where it is not
    the device's usual one. ``rows`` (first, last + 1) are those that are kept, if not all are.
    """

    name: str
    tensors: tuple[str, ...]
    form: str = "q8"
    config: Config | None = None
    rows: tuple[int, int] | None = None

    def infos(self, file: GgufFile) -> list[TensorInfo]:
        """Where it lies in a file. Raises MissingTensor."""
        found = [file.tensor(name) for name in self.tensors]
        return found if self.rows is None else [info.rows(*self.rows) for info in found]


def parts(file: GgufFile, form: str = "q8") -> list[Part]:
    """Every tensor for itself: matrices in ``form``, all others in float32."""
    return [part(file, info.name, (info.name,), form) for info in file.tensors.values()]


def part(file: GgufFile, name: str, tensors: tuple[str, ...], form: str) -> Part:
    """Tensors as one part; ``form`` is for matrices: "q4" means 4 bits for those that have 4 bits
    in the file, else "q8". Raises MissingTensor."""
    if not weights.is_matrix(file.tensor(tensors[0])):
        return Part(name, tensors, "f32")
    if form == "q4" and not weights.is_small(file, tensors):
        form = "q8"
    return Part(name, tensors, form)


def kept_bytes(file: GgufFile, part: Part) -> int:
    """Bytes that a part takes on a device. Raises MissingTensor."""
    infos = part.infos(file)
    if part.form in PACKED:
        size = {"q8": q8_bytes, "q4": q4_bytes}[part.form]
        return size(sum(info.shape[0] for info in infos), infos[0].shape[-1])
    return 4 * sum(info.size for info in infos)


def load(
    file: GgufFile, device: Device, wanted: Iterable[Part], target: Target | None = None
) -> dict[str, Any]:
    """The parts as buffers of ``device``, by name, matrices laid out for ``target`` (default: the
    device's own).

    Shows a bar on a terminal if it takes longer than a second. Raises ModelError, OutOfMemory.
    """
    sized = sorted(((kept_bytes(file, part), part) for part in wanted), key=lambda x: -x[0])
    check_room(file, device, [part for _, part in sized])
    buffers: dict[str, Any] = {}
    done = 0
    with (
        Progress(_whole(sized), "loading MB", delay=SHOW_AFTER) as progress,
        ThreadPoolExecutor(WORKERS, "ferro-load") as pool,
    ):
        futures = {pool.submit(put, file, device, p, target): (size, p) for size, p in sized}
        try:
            for future in as_completed(futures):
                size, part = futures[future]
                buffers[part.name] = future.result()
                done += size
                progress.step(part.name, done // MEGA - progress.done)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return buffers


def check_room(
    file: GgufFile, device: Device, wanted: Iterable[Part], beside: int = 0, what: str = "caches"
) -> None:
    """Raises OutOfMemory if parts, and bytes ``beside`` them for ``what``, cannot fit."""
    needed = sum(kept_bytes(file, part) for part in wanted)
    host = system.total_memory()
    there = min(host, device.info.capabilities.get("memory", host))
    if needed + beside > there:
        more = f" and the {what} {megabytes(beside)}" if beside else ""
        raise OutOfMemory(
            f"the weights take {megabytes(needed)}{more}, {device.name} has {megabytes(there)}"
        )


def put(file: GgufFile, device: Device, part: Part, target: Target | None = None) -> Any:
    """One part as a buffer of ``device``. Raises ModelError, OutOfMemory."""
    if part.form in PACKED:
        matrix = PACKED[part.form](file, part.infos(file))
        return device.weights(matrix, target=target, config=part.config)
    read = weights.turned if part.form == "turned" else weights.f32
    return device.array(read(file, part.infos(file)), "weights")


def _whole(sized: Sequence[tuple[int, Part]]) -> int:
    return sum(size for size, _ in sized) // MEGA
