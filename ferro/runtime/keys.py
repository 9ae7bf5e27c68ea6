"""The parts of a program's cache key: everything that reaches the vendor's compiler."""

from __future__ import annotations

import json
from dataclasses import replace

from ferro import codegen
from ferro.codegen.program import Config, Target
from ferro.dsl import canonical, ir
from ferro.runtime.building import device_options
from ferro.runtime.listing import DeviceInfo, host_processor
from ferro.runtime.programs import config_to_json, target_to_json


def key_parts(
    kernel: ir.Kernel, target: Target, config: Config, info: DeviceInfo
) -> dict[str, str]:
    """Name to text; two launches with equal parts may share a binary.

    What a config leaves out counts as what it stands for: defaults that are spelt out make no other
    program.
    """
    lowered = codegen.resolve(target, config)
    constants = {name: int(kernel.constants[name]) for name in sorted(kernel.schedule)}
    settled = replace(config, constants=constants, lanes=None, dot=None)
    return {
        "kernel": canonical.digest(kernel),
        "codegen": str(codegen.CODEGEN_VERSION),
        "templates": codegen.template_hash(),
        "target": json.dumps(target_to_json(lowered)),
        "config": json.dumps(config_to_json(settled)),
        "options": " ".join(device_options(info, target)),
        "platform": f"{info.platform} {info.version}",
        "device": info.name,
        "driver": info.driver,
        "processor": host_processor(),
    }
