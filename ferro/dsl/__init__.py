"""The kernel language: ``from ferro.dsl import kernel, tl``."""

from ferro.dsl import language as tl
from ferro.dsl.diagnostics import CompileError, Diagnostic
from ferro.dsl.kernel import KernelDefinition, kernel
from ferro.dsl.quantised import A8, Q4, Q8
from ferro.dsl.types import f16, f32, i8, i16, i32, u8, u16, u32

__all__ = [
    "A8",
    "Q4",
    "Q8",
    "CompileError",
    "Diagnostic",
    "KernelDefinition",
    "f16",
    "f32",
    "i8",
    "i16",
    "i32",
    "kernel",
    "tl",
    "u8",
    "u16",
    "u32",
]
