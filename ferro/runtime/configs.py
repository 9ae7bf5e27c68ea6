"""Which config a launch takes if it names none.

The first that there is of: ``FERRO_FORCE_CONFIG``; the winner of this machine's own trials; a
shipped winner for devices of this kind; the kernel's declared default. Every config gives the same
bits, so a choice can only be slow, never wrong.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ferro.codegen.errors import ConfigError
from ferro.codegen.program import Config, Target
from ferro.dsl import ir
from ferro.dsl.kernel import KernelDefinition
from ferro.dsl.launch import Binding
from ferro.runtime.listing import DeviceInfo
from ferro.runtime.programs import config_from_json
from ferro.runtime.trials import Place, Sizes, Trials, bucket

FORCE = "FERRO_FORCE_CONFIG"
SHIPPED_KERNELS = "kernels_src."
TABLES = "autotune"

log = logging.getLogger(__name__)


def kernel_key(kernel: KernelDefinition) -> str:
    """What trials of a kernel are filed under: "matmul.matmul_q8" for a shipped kernel; for any
    other its name and a hash of its text, so that two kernels of one name do not meet."""
    module = getattr(kernel.function, "__module__", None) or ""
    if module.startswith(SHIPPED_KERNELS):
        return f"{module.removeprefix(SHIPPED_KERNELS)}.{kernel.name}"
    text = hashlib.sha256(kernel.source.encode()).hexdigest()
    return f"{kernel.name}@{text[:12]}"


def launch_sizes(kernel: ir.Kernel, binding: Binding) -> dict[str, int]:
    """What decides the speed of a launch: its dimensions and its integer constants of meaning.

    Texts, floats and which optional buffers are there change little work and do not count.
    """
    constants = {
        name: value
        for name, value in kernel.constants.items()
        if type(value) is int and name not in kernel.schedule
    }
    return {**constants, **dict(binding.key)}


class Chooser:
    """The configs of launches on one device; ``device.chooser`` calls it for each new shape."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.forced = parse_forced(os.environ.get(FORCE, ""))
        self._trials: Trials | None = None
        self._shipped: dict[str, list[Shipped]] = {}
        self._known: dict[tuple[int, Place], tuple[KernelDefinition, Config | None]] = {}
        self._told: set[str] = set()

    def __call__(self, kernel: KernelDefinition, sizes: Sizes, target: Target) -> Config | None:
        """The config for a launch of these sizes, None for the kernel's default."""
        if self.forced:
            return self._forced(kernel)
        place = Place.of(kernel_key(kernel), target.name, sizes)
        found = self._known.get((id(kernel), place))
        if found is None:
            # the definition is kept, so that its id means no other one
            found = self._known[id(kernel), place] = (kernel, self._choose(kernel, place, target))
        return found[1]

    def _forced(self, kernel: KernelDefinition) -> Config | None:
        if kernel.name in self.forced:
            return self.forced[kernel.name]
        config = self.forced.get("")
        if config is None:
            return None
        declared = kernel.schedule
        own = {n: v for n, v in config.constants.items()
               if n in declared and v in declared[n].choices}  # fmt: skip
        return replace(config, constants=own)

    def _choose(self, kernel: KernelDefinition, place: Place, target: Target) -> Config | None:
        if self._trials is None:
            self._trials = Trials.of(self.info)
        own = self._trials.winner(place)
        config = own.config if own else self._from_tables(place, target)
        if config is not None and fits(config, kernel):
            return config
        if kernel.schedule and kernel.name not in self._told:
            self._told.add(kernel.name)
            log.info(
                "%s: no tuned config for %s on %s, using its default (`ferro autotune %s`)",
                kernel.name,
                place,
                self.info.alias,
                kernel.name,
            )
        return None

    def _from_tables(self, place: Place, target: Target) -> Config | None:
        if target.name not in self._shipped:
            self._shipped[target.name] = [s for s in shipped() if s.serves(self.info, target)]
        found = [s for s in self._shipped[target.name] if s.covers(place)]
        return best(found)


def best(found: Sequence[Shipped]) -> Config | None:
    """The config that was chosen for the narrowest sizes, then for the narrowest kind of target."""
    if not found:
        return None
    return max(found, key=lambda s: (len(s.sizes), max(map(len, s.targets)))).config


def fits(config: Config, kernel: KernelDefinition) -> bool:
    """False for a config of a kernel that has changed since."""
    schedule = kernel.schedule
    return all(n in schedule and v in schedule[n].choices for n, v in config.constants.items())


@dataclass(frozen=True)
class Shipped:
    """A winner that comes with Ferro: for devices of these aliases (and, if given, names with one
    of these parts), targets that begin so, and buckets of the sizes it names."""

    devices: tuple[str, ...]
    names: tuple[str, ...]
    targets: tuple[str, ...]
    kernel: str
    sizes: Mapping[str, int]
    config: Config

    def serves(self, info: DeviceInfo, target: Target) -> bool:
        named = not self.names or any(name in info.name for name in self.names)
        aimed = any(f"{target.name}-".startswith(f"{wanted}-") for wanted in self.targets)
        return info.alias in self.devices and named and aimed

    def covers(self, place: Place) -> bool:
        return self.kernel == place.kernel and self.sizes.items() <= dict(place.bucket).items()


@lru_cache
def shipped() -> tuple[Shipped, ...]:
    """All tables of the package ``autotune``, which is data here: none of it is imported."""
    found = importlib.util.find_spec(TABLES)
    folders = list(found.submodule_search_locations or ()) if found else []
    files = sorted(file for folder in folders for file in Path(folder, "winners").glob("*.json"))
    return tuple(entry for file in files for entry in read_table(json.loads(file.read_text())))


def read_table(table: Mapping[str, Any]) -> list[Shipped]:
    """The winners of one table. Raises KeyError for what is no table."""
    return [
        Shipped(
            tuple(table["devices"]),
            tuple(table.get("names", ())),
            tuple(table["targets"]),
            entry["kernel"],
            bucket(entry["sizes"]),
            config_from_json({**config_defaults(), **entry["config"]}),
        )
        for entry in table["winners"]
    ]


def config_defaults() -> dict[str, Any]:
    return {
        "constants": {},
        "lanes": None,
        "lane_axis": [],
        "split": 1,
        "dot": None,
        "prefetch": True,
        "group": 0,
    }


def parse_forced(text: str) -> dict[str, Config]:
    """``FERRO_FORCE_CONFIG``: "BM=8" for every kernel that offers it, "matmul_q8: BM=8 split=2;
    softmax: default" for some, by the kernel's name ("" for every one). Raises ConfigError."""
    found = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, colon, words = part.rpartition(":")
        made = parse_config(words)
        if not colon and made != Config(made.constants, prefetch=made.prefetch):
            raise ConfigError(
                f"{FORCE}: `{part}`: lanes, lane_axis, split, dot and group do not suit every"
                f" kernel: write `KERNEL: {part}`"
            )
        found[name.strip()] = made
    return found


def parse_config(text: str) -> Config:
    """A config as it prints itself: "BM=8 lanes=16 lane_axis=n+m split=2 dot=avx2", or "default".

    Raises ConfigError.
    """
    made = Config()
    for word in re.split(r"[\s,]+", text.strip()):
        name, sign, value = word.partition("=")
        if word == "default":
            continue
        if not (sign and name and value):
            raise ConfigError(f"{FORCE}: `{word}` is no NAME=VALUE")
        if name == "dot":
            made = replace(made, dot=value)
        elif name == "lane_axis":
            made = replace(made, lane_axis=tuple(value.split("+")))
        elif not value.isdigit():
            raise ConfigError(f"{FORCE}: {name} is a number, got `{value}`")
        elif name == "lanes":
            made = replace(made, lanes=int(value))
        elif name == "split":
            made = replace(made, split=int(value))
        elif name == "group":
            made = replace(made, group=int(value))
        elif name == "prefetch":
            made = replace(made, prefetch=value != "0")
        else:
            made = replace(made, constants={**made.constants, name: int(value)})
    return made
