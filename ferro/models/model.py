"""What every model on a device is: a file, its tokenizer, weights and plans of launches."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any, Self

from ferro.models.gguf import GgufFile
from ferro.models.loaded import Loaded
from ferro.models.plans import Plans
from ferro.models.tokenizer import Tokenizer
from ferro.runtime.errors import DeviceLost


class Model:
    """One model file on one device. Close it, or use ``with``; ``owns_device``: the device is
    closed with it."""

    owns_device = False

    def __init__(self, file: GgufFile, loaded: Loaded, plans: Plans[Any, Any]) -> None:
        self.file, self.tokenizer = file, Tokenizer(file.metadata)
        self.device, self.hyperparameters = loaded.device, loaded.made
        self._loaded, self._plans = loaded, plans
        # passes share scratch memory and what they read from the host: one at a time
        self._passing = Lock()

    def close(self) -> None:
        """Give the device's memory back; what a lost device may still use stays."""
        with suppress(DeviceLost):
            self.device.finish()
        self._plans.clear()
        self._release()
        if self.owns_device:
            self.device.close()

    def _release(self) -> None:
        self._loaded.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
