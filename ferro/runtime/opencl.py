"""A device behind OpenCL: context, queue, memory, program cache and launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from weakref import WeakKeyDictionary

import pyopencl as cl

from ferro.codegen.program import Config, Program, Target
from ferro.dsl.ir import Kernel
from ferro.dsl.quantised import Q4, Q8
from ferro.runtime import building, calls, probes
from ferro.runtime.buffers import Buffer
from ferro.runtime.cache import ProgramCache
from ferro.runtime.device import Device, attached
from ferro.runtime.errors import DeviceUnusable
from ferro.runtime.launcher import Launcher, q8_layout
from ferro.runtime.listing import DeviceInfo, opencl_devices
from ferro.runtime.memory import Memory
from ferro.runtime.plan import Plan
from ferro.runtime.profiler import Profiler
from ferro.runtime.queues import Queue


class OpenCLDevice(Device):
    """One OpenCL device with one in-order queue.

    Several threads may use it: enqueueing a launch is guarded by a lock.
    """

    def __init__(
        self,
        info: DeviceInfo,
        timeout: float = 60.0,
        cache: ProgramCache | None = None,
    ) -> None:
        self.info = info
        self.raw = opencl_devices()[info.index]
        try:
            self.context = cl.Context([self.raw])
            self.queue = Queue(self.context, self.raw, f"{info.alias} ({info.name})", timeout)
        except cl.Error as error:
            raise DeviceUnusable(f"cannot open {info}: {error}") from error
        facts = info.capabilities
        self.store = Memory(
            str(info.alias),
            self.context,
            self.queue,
            largest=facts["largest buffer"],
            total=facts["memory"],
            alignment=facts["buffer alignment"],
            mapped=info.kind == "cpu" and info.alias != "oclgrind",
        )
        self.cache = cache or ProgramCache()
        self.launcher = Launcher(self)
        self._built: dict[str, building.Built] = {}
        self._near: WeakKeyDictionary[Kernel, dict[tuple[Target, str], building.Built]]
        self._near = WeakKeyDictionary()
        self._locks = building.BuildLocks()
        self._targets: tuple[Target, ...] = ()
        self._found: probes.Findings | None = None

    @property
    def target(self) -> Target:
        return self.targets()[0]

    def targets(self) -> tuple[Target, ...]:
        if not self._targets:
            self._targets = probes.targets(self.info, self.found)
        return self._targets

    @property
    def found(self) -> probes.Findings:
        """What the probes found. Raises DeviceUnusable."""
        if self._found is None:
            self._found = probes.findings(self.info)
        return self._found

    def weights(
        self,
        data: Q8 | Q4,
        purpose: str = "weights",
        target: Target | str | None = None,
        config: Config | Mapping[str, int] | None = None,
    ) -> Buffer:
        lanes, biased = q8_layout(self.aimed(target) or self.target, calls.settled(config))
        return self.store.weights(data, lanes, biased, purpose)

    def _launch(self, call: calls.Call) -> None:
        self.launcher.run(call)

    def plan(self) -> AbstractContextManager[Plan]:
        self.store.check_open()
        return self.launcher.recording()

    def _chosen(self, call: calls.Call) -> Config:
        return self.launcher.config_for(call.kernel, call.arguments, call.target)

    def build(self, program: Program) -> building.Built:
        """Compile a program without looking at any cache. Raises BuildError."""
        self.store.check_open()
        facts = self.info.capabilities
        building.check_limits(program, facts["largest work-group"], facts["local memory"])
        building.check_ability(program, self.found, str(self.info.alias))
        further = building.device_options(self.info, program.target)
        return building.from_source(self.context, self.raw, program, further)

    def build_once(self, program: Program) -> building.Built:
        """Like ``build``, remembered for this very text."""
        key = "\0".join([program.source, *program.options])
        with self._locks.of(key):
            if key not in self._built:
                self._built[key] = self.build(program)
        return self._built[key]

    def built(self, kernel: Kernel, target: Target, config: Config) -> building.Built:
        """The compiled kernel from memory, from the program cache, or newly generated."""
        near = self._near.setdefault(kernel, {})
        wanted = (target, str(config))
        if wanted not in near:
            near[wanted] = self._far(kernel, target, config)
        return near[wanted]

    def _far(self, kernel: Kernel, target: Target, config: Config) -> building.Built:
        """``built`` by the key of the program cache: a millisecond, mostly the kernel's digest."""
        from ferro.runtime.keys import key_parts

        parts = key_parts(kernel, target, config, self.info)
        key = "\0".join(parts.values())
        with self._locks.of(key):
            found = self._built.get(key) or self._load(kernel.name, parts)
            if found is None:
                found = self._generate(kernel, target, config, parts)
            self._built[key] = found
        return found

    def _load(self, name: str, parts: dict[str, str]) -> building.Built | None:
        entry = self.cache.load(name, parts)
        if entry is None:
            return None
        return building.from_binary(self.context, self.raw, *entry)

    def _generate(
        self, kernel: Kernel, target: Target, config: Config, parts: dict[str, str]
    ) -> building.Built:
        from ferro import codegen

        made = self.build(codegen.generate(kernel, target, config))
        self.cache.store(kernel.name, parts, made.program, made.binary())
        return made

    def finish(self, timeout: float | None = None) -> None:
        self.store.check_open()
        self.queue.finish(timeout)

    @contextmanager
    def profile(self) -> Iterator[Profiler]:
        self.store.check_open()
        with attached(self.queue) as profiler:
            yield profiler
            self.finish()

    def close(self) -> None:
        if self.store.closed:
            return
        if not self.queue.watchdog.lost:
            self.finish()
        self.store.closed = True
        self._built.clear()
        self._near.clear()
        self.launcher.clear()
        self.queue.watchdog.close()
