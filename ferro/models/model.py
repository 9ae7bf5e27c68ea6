"""What every model on a device is: a file, its tokenizer, weights and plans of launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Self

from ferro.models.gguf import GgufFile
from ferro.models.loaded import Loaded
from ferro.models.plans import Plans
from ferro.models.tokenizer import Tokenizer
from ferro.runtime.errors import DeviceError


class ModelClosed(RuntimeError):
    """A model is used that was closed."""

    exit_code = 1


class Model:
    """One model file on one device. Close it, or use ``with``; ``owns_device``: the device is
    closed with it. Threads may share it: their passes take turns."""

    owns_device = False

    def __init__(self, file: GgufFile, loaded: Loaded, plans: Plans[Any, Any]) -> None:
        self.file, self.tokenizer = file, Tokenizer(file.metadata)
        self.device, self.hyperparameters = loaded.device, loaded.made
        self._loaded, self._plans = loaded, plans
        # passes share scratch memory and what they read from the host: one at a time
        self._passing = Lock()
        self._closed = False

    def close(self) -> None:
        """Give the device's memory back after the pass that is under way; what a lost device may
        still use stays. A model that is closed stays so."""
        with self._passing:
            if self._closed:
                return
            self._closed = True
            with suppress(DeviceError):  # lost, or closed already
                self.device.finish()
            self._plans.clear()
            self._release()
            if self.owns_device:
                self.device.close()

    def check_open(self) -> None:
        """Raises ModelClosed."""
        if self._closed:
            raise ModelClosed(f"{self.file.path} was closed: open it again to go on")

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One pass: threads wait for each other. Raises ModelClosed."""
        with self._passing:
            self.check_open()
            yield

    def _release(self) -> None:
        self._loaded.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
