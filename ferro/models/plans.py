"""Plans of launches by the shape of a pass: recorded once, replayed for every pass of the shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ferro.models.operations import Operations
from ferro.runtime.device import Device

HELD = 64 << 20  # bytes of scratch that plans keep besides the newest one's

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
    the buffer of its result."""

    def __init__(
        self,
        device: Device,
        prepare: Callable[[Shape], Run],
        forward: Callable[[Run], Any],
    ) -> None:
        self._device, self._prepare, self._forward = device, prepare, forward
        self._plans: OrderedDict[Shape, Recorded[Run]] = OrderedDict()

    def __getitem__(self, shape: Shape) -> Recorded[Run]:
        """The plan of a shape; the oldest ones go when their scratch memory passes HELD. Raises
        OutOfMemory, DeviceLost."""
        found = self._plans.pop(shape, None)
        if found is None:
            held = sum(recorded.run.nbytes for recorded in self._plans.values())
            while held > HELD:
                held -= self._plans.popitem(last=False)[1].run.nbytes
            found = self._record(shape)
        self._plans[shape] = found
        return found

    def clear(self) -> None:
        self._plans.clear()

    def _record(self, shape: Shape) -> Recorded[Run]:
        run = self._prepare(shape)
        with self._device.plan() as plan:
            result = self._forward(run)
        return Recorded(run, plan, result)
