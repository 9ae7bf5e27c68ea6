"""Plans of launches by the shape of a pass: recorded once, replayed for every pass of the shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ferro.models.operations import Operations
from ferro.models.scratch import Scratch
from ferro.runtime.device import Device

HELD = 64 << 20  # bytes of scratch that plans keep besides the newest one's
MOST = 64  # plans, whose kernels take some memory too

Shape = TypeVar("Shape", bound=Hashable)
Run = TypeVar("Run", bound=Operations)


@dataclass(frozen=True)
class Recorded(Generic[Run]):
    """A plan for passes of one shape, the operations it is made of and its result."""

    run: Run
    plan: Any
    result: Any


class Plans(Generic[Shape, Run]):
    """``prepare`` makes the operations for a shape, ``forward`` launches a pass with them and gives
    the buffer of its result. Scratch that is ``shared`` stays, whichever plans there are."""

    def __init__(
        self,
        device: Device,
        prepare: Callable[[Shape], Run],
        forward: Callable[[Run], Any],
        shared: Scratch | None = None,
    ) -> None:
        self._device, self._prepare, self._forward = device, prepare, forward
        self._shared = shared
        self._plans: OrderedDict[Shape, Recorded[Run]] = OrderedDict()

    def __getitem__(self, shape: Shape) -> Recorded[Run]:
        """The plan of a shape; the oldest ones go when they are MOST, or when their own scratch
        memory passes HELD. Raises OutOfMemory, DeviceLost."""
        found = self._plans.pop(shape, None)
        if found is None:
            held = sum(map(self._own, self._plans.values()))
            while held > HELD or len(self._plans) >= MOST:
                held -= self._own(self._plans.popitem(last=False)[1])
            found = self._record(shape)
        self._plans[shape] = found
        return found

    def clear(self) -> None:
        self._plans.clear()

    def _own(self, recorded: Recorded[Run]) -> int:
        """Bytes of scratch that a plan has for itself."""
        scratch = recorded.run.scratch
        return 0 if scratch is self._shared else scratch.nbytes

    def _record(self, shape: Shape) -> Recorded[Run]:
        run = self._prepare(shape)
        with self._device.plan() as plan:
            result = self._forward(run)
        return Recorded(run, plan, result)
