"""Tile IR to OpenCL C: two targets, one lowering."""

from ferro.codegen.errors import ConfigError
from ferro.codegen.generate import CODEGEN_VERSION, generate, resolve
from ferro.codegen.program import Argument, Config, Entry, Program, Target
from ferro.codegen.templates import template_hash

__all__ = [
    "CODEGEN_VERSION",
    "Argument",
    "Config",
    "ConfigError",
    "Entry",
    "Program",
    "Target",
    "generate",
    "resolve",
    "template_hash",
]
