"""What was measured of a kernel's configs on one device: kept in a file, winners derived from it.

A trial belongs to a kernel, a target and a *bucket* of sizes: each size rounded up to a power of
two. Winners are not stored, so one more config costs one more timing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ferro.codegen.program import Config
from ferro.folders import cache_folder, write_atomically
from ferro.runtime.listing import DeviceInfo
from ferro.runtime.programs import config_from_json, config_to_json

FORMAT = 1
LEAST_GAIN = 0.03
OUTCOMES = ("timed", "wrong", "failed", "lost")

Sizes = Mapping[str, int]

log = logging.getLogger(__name__)


def bucket(sizes: Sizes) -> dict[str, int]:
    """The sizes, each rounded up to a power of two: launches of one bucket share a winner."""
    return {
        name: 1 << (size - 1).bit_length() if size > 0 else size
        for name, size in sorted(sizes.items())
    }


@dataclass(frozen=True)
class Place:
    """What a winner is a winner of: a kernel on a target for a bucket of sizes."""

    kernel: str
    target: str
    bucket: tuple[tuple[str, int], ...]

    @staticmethod
    def of(kernel: str, target: str, sizes: Sizes) -> Place:
        return Place(kernel, target, tuple(bucket(sizes).items()))

    def __str__(self) -> str:
        return " ".join(f"{name}<={size}" for name, size in self.bucket) or "any size"


@dataclass(frozen=True)
class Trial:
    """One config that was tried.

    ``outcome`` is "timed", "wrong" (other bits than the interpreter's), "failed" (no build or no
    launch) or "lost" (the process died or hung; never tried again). ``program`` is a hash of the
    generated text, which tells whether the trial still says something. ``seconds`` is a median
    over ``launches``, ``relative`` the median ratio to the kernel's default, timed in turns with
    it; ``spread`` is the distance between quartiles as a share of the median.
    """

    kernel: str
    target: str
    sizes: Sizes
    config: Config
    program: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    relative: float = 0.0
    spread: float = 0.0
    launches: int = 0
    is_default: bool = False

    @property
    def place(self) -> Place:
        return Place.of(self.kernel, self.target, self.sizes)

    @property
    def name(self) -> str:
        return str(self.config)

    @property
    def uncertain(self) -> bool:
        """Whether its times differ by more than it gains on the default: another program may have
        decided."""
        return self.outcome == "timed" and not self.is_default and self.spread > 1 - self.relative

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "config": config_to_json(self.config)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trial:
        """The inverse of ``to_json``. Raises KeyError, TypeError, ValueError for anything else."""
        trial = Trial(**{**data, "config": config_from_json(data["config"])})
        if trial.outcome not in OUTCOMES:
            raise ValueError(f"there is no outcome {trial.outcome!r}")
        return trial


def winner(trials: Iterable[Trial]) -> Trial | None:
    """The fastest of the trials of one place, None if none was timed.

    Another config than the default must gain more than 3% on it.
    """
    timed = [trial for trial in trials if trial.outcome == "timed"]
    if not timed:
        return None
    best = min(timed, key=lambda trial: trial.relative)
    default = next((trial for trial in timed if trial.is_default), best)
    return best if best.relative < (1 - LEAST_GAIN) * default.relative else default


@dataclass
class Trials:
    """The trials of one device and driver, in ``path``."""

    path: Path
    device: str = ""
    _kept: dict[Place, dict[str, Trial]] = field(default_factory=dict)
    _new: list[Trial] = field(default_factory=list)

    @staticmethod
    def of(info: DeviceInfo) -> Trials:
        """Those in the user's cache folder. A damaged file costs a warning, then counts as none."""
        path = cache_folder("trials", f"{info.identity}.json")
        found = Trials(path, f"{info.name}, {info.platform}, driver {info.driver}")
        found._keep(read(path))
        return found

    def add(self, trial: Trial) -> None:
        """Take a trial in, in place of an earlier one of the same config."""
        self._keep([trial])
        self._new.append(trial)

    def at(self, place: Place) -> dict[str, Trial]:
        """The trials of one place by the config's name."""
        return dict(self._kept.get(place, {}))

    def places(self) -> list[Place]:
        return sorted(self._kept, key=lambda p: (p.kernel, p.target, p.bucket))

    def winner(self, place: Place) -> Trial | None:
        return winner(self._kept.get(place, {}).values())

    def save(self) -> None:
        """Write what was added into the file, beside what others wrote there meanwhile.

        A folder that cannot be written costs a warning.
        """
        merged = Trials(self.path)
        merged._keep(read(self.path))
        merged._keep(self._new)
        listed = [t.to_json() for place in merged.places() for t in merged.at(place).values()]
        record = {"format": FORMAT, "device": self.device, "checksum": digest(listed)}
        text = json.dumps({**record, "trials": listed}, indent=1)
        try:
            write_atomically(self.path, text.encode())
        except OSError as error:
            reason = error.strerror or error
            log.warning("trials are not kept: %s cannot be written (%s)", self.path, reason)

    def _keep(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            self._kept.setdefault(trial.place, {})[trial.name] = trial


def digest(trials: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(trials, sort_keys=True).encode()).hexdigest()


def read(path: Path) -> list[Trial]:
    """The trials in a file; none, and a warning, if anything in it is wrong."""
    try:
        data = json.loads(path.read_text())
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, expected {FORMAT}")
        if data["checksum"] != digest(data["trials"]):
            raise ValueError("the checksum does not fit")
        return [Trial.from_json(trial) for trial in data["trials"]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s is damaged (%s): tuning starts afresh", path, error)
        return []
