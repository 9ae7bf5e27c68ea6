"""The parts of a program's cache key: everything that reaches the vendor's compiler."""

from __future__ import annotations

import json

from ferro import codegen
from ferro.codegen.program import Config, Target
from ferro.dsl import canonical, ir
from ferro.runtime.building import device_options
from ferro.runtime.listing import DeviceInfo, host_processor
from ferro.runtime.programs import config_to_json, target_to_json


def key_parts(
    kernel: ir.Kernel, target: Target, config: Config, info: DeviceInfo
) -> dict[str, str]:
    """Name to text; two launches with equal parts may share a binary."""
    return {
        "kernel": canonical.digest(kernel),
        "codegen": str(codegen.CODEGEN_VERSION),
        "templates": codegen.template_hash(),
        "target": json.dumps(target_to_json(target)),
        "config": json.dumps(config_to_json(config)),
        "options": " ".join(device_options(info, target)),
        "platform": f"{info.platform} {info.version}",
        "device": info.name,
        "driver": info.driver,
        "processor": host_processor(),
    }
