"""The OpenCL C of the probes: each asks one question of a compiler and a processor.

A probe's kernel reads ``a`` (and ``b``, ``c``) and writes ``out``; what it must give is in
``probe_checks``. These are questions about a device, not kernels of Ferro.
"""

from __future__ import annotations

_TYPES = """
typedef char bytes64 __attribute__((ext_vector_type(64)));
typedef char bytes32 __attribute__((ext_vector_type(32)));
"""

# What the intrinsic is declared to take depends on the LLVM version inside the runtime.
VNNI = {
    ("vnni512", "intel"): _TYPES
    + """
int16 __attribute__((overloadable)) dpbusd(int16, bytes64, bytes64)
    __asm__("llvm.x86.avx512.vpdpbusd.512");
#define DOT(acc, w, x) dpbusd(acc, __builtin_astype(w, bytes64), __builtin_astype(x, bytes64))
""",
    ("vnni512", "pocl"): """
int16 __attribute__((overloadable)) dpbusd(int16, int16, int16)
    __asm__("llvm.x86.avx512.vpdpbusd.512");
#define DOT(acc, w, x) dpbusd(acc, w, x)
""",
    ("vnni256", "intel"): _TYPES
    + """
int8 __attribute__((overloadable)) dpbusd(int8, bytes32, bytes32)
    __asm__("llvm.x86.avx512.vpdpbusd.256");
#define DOT(acc, w, x) dpbusd(acc, __builtin_astype(w, bytes32), __builtin_astype(x, bytes32))
""",
    ("vnni256", "pocl"): """
int8 __attribute__((overloadable)) dpbusd(int8, int8, int8)
    __asm__("llvm.x86.avx512.vpdpbusd.256");
#define DOT(acc, w, x) dpbusd(acc, w, x)
""",
}

# Weights are stored as unsigned bytes, so the kernel takes 128 times the activations off again.
_VNNI_KERNEL = """
__kernel void probe(__global const {vector} *a, __global const {vector} *b,
                    __global const {vector} *c, __global {vector} *out)
{{
    size_t i = get_global_id(0);
    {vector} start = c[i] - 128 * DOT(({vector})(0), ({vector})(0x01010101), b[i]);
    out[i] = DOT(start, a[i] ^ ({vector})(0x80808080), b[i]);
}}
"""

_AVX2 = """
typedef char bytes32 __attribute__((ext_vector_type(32)));
typedef short words16 __attribute__((ext_vector_type(16)));
short16 __attribute__((overloadable)) maddubs(bytes32, bytes32)
    __asm__("llvm.x86.avx2.pmadd.ub.sw");
int8 __attribute__((overloadable)) maddwd(short16, short16)
    __asm__("llvm.x86.avx2.pmadd.wd");
__kernel void probe(__global const int8 *a, __global const int8 *b, __global const int8 *c,
                    __global int8 *out)
{
    size_t i = get_global_id(0);
    bytes32 w = __builtin_astype(a[i], bytes32), x = __builtin_astype(b[i], bytes32);
    bytes32 minus = w >> (bytes32)(7);
    bytes32 size = (w ^ minus) - minus, turned = (x ^ minus) - minus;
    out[i] = c[i] + maddwd(maddubs(size, turned), (short16)(1));
}
"""

_DP4A = """
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
__kernel void probe(__global const uint *a, __global const uint *b, __global const int *c,
                    __global int *out)
{
    size_t i = get_global_id(0);
    out[i] = dot_acc_sat_4x8packed_ss_int(a[i], b[i], c[i]);
}
"""

_EMULATED = """
__kernel void probe(__global const int *a, __global const int *b, __global const int *c,
                    __global int *out)
{
    size_t i = get_global_id(0);
    char4 w = as_char4(a[i]), x = as_char4(b[i]);
    out[i] = c[i] + w.x * x.x + w.y * x.y + w.z * x.z + w.w * x.w;
}
"""

_BLOCK_READ = """
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
__attribute__((intel_reqd_sub_group_size(16)))
__kernel void probe(__global const uint *a, __global const uint *b, __global const uint *c,
                    __global uint *out)
{
    uint i = get_global_id(0), n = get_global_size(0);
    uint8 words = intel_sub_group_block_read8(a + get_group_id(0) * 128);
    vstore8(words, i, out);
    out[8 * n + i] = sub_group_broadcast(words.s0, 3);
    out[9 * n + i] = intel_sub_group_shuffle_xor(words.s0, 4);
}
"""

_HALF = """
__kernel void probe(__global const int *a, __global const float *b, __global const int *c,
                    __global float *out)
{
    size_t i = get_global_id(0);
    __global half *halves = (__global half *)(out + get_global_size(0));
    out[i] = vload_half(i, (__global const half *)a);
    vstore_half_rte(b[i], i, halves);
}
"""

_HEAD = "#pragma OPENCL FP_CONTRACT OFF\n"

_FMA = """
__kernel void probe(__global const float *a, __global const float *b, __global const float *c,
                    __global float *out)
{
    size_t i = get_global_id(0), n = get_global_size(0);
    out[i] = fma(a[i], b[i], c[i]);
    out[n + i] = a[i] * b[i] + c[i];
    out[2 * n + i] = a[i] * b[i];
    out[3 * n + i] = a[i] + c[i];
    out[4 * n + i] = rint(a[i]);
    out[5 * n + i] = floor(a[i]);
}
"""

_VECTOR_FMA = """
__kernel void probe(__global const float *a, __global const float *b, __global const float *c,
                    __global float *out)
{
    size_t i = get_global_id(0), n = get_global_size(0);
    float8 x = vload8(i, a), y = vload8(i, b), z = vload8(i, c);
    vstore8(fma(x, y, z), i, out);
    vstore8(x * y + z, n + i, out);
    vstore8(x * y, 2 * n + i, out);
    vstore8(x + z, 3 * n + i, out);
    vstore8(rint(x), 4 * n + i, out);
    vstore8(floor(x), 5 * n + i, out);
}
"""

# PoCL's own vector fma is a call for each element, ten times slower than the instruction. Vectors
# that are wider than the registers go by address, which no intrinsic takes: `targets` asks for
# 16 lanes only where the dots of 16 lanes work.
_LLVM_FMA = """
float8 __attribute__((overloadable)) fma8(float8, float8, float8) __asm__("llvm.fma.v8f32");
__kernel void probe(__global const float *a, __global const float *b, __global const float *c,
                    __global float *out)
{
    size_t i = get_global_id(0);
    vstore8(fma8(vload8(i, a), vload8(i, b), vload8(i, c)), i, out);
}
"""

# The last address is far behind the buffer: a prefetch of it must do nothing.
_PREFETCH = """
{head}
__kernel void probe(__global const uint *a, __global const uint *b, __global const uint *c,
                    __global uint *out)
{{
    size_t i = get_global_id(0);
    ahead(a + i, 0, 3, 1);
    ahead(a + (i << 20), 0, 3, 1);
    out[i] = a[i];
}}
"""

PREFETCH = {
    "intel": "void __attribute__((overloadable)) ahead(__global const uint*, int, int, int)"
    ' __asm__("llvm.prefetch.p1");',
    "pocl": 'void ahead(__global const uint*, int, int, int) __asm__("llvm.prefetch.p0i32");',
}

_CONVERT = """
__kernel void probe(__global const float *a, __global const int *b, __global const int *c,
                    __global int *out)
{
    size_t i = get_global_id(0), n = get_global_size(0);
    out[i] = convert_int_sat_rte(a[i]);
    out[n + i] = as_int(convert_float_rte(b[i]));
    out[2 * n + i] = as_int(convert_float_rte(as_uint(b[i])));
    out[3 * n + i] = convert_char_sat(b[i]);
}
"""


def source(name: str, abi: str = "") -> str:
    """The program of a probe. Raises KeyError for an unknown one."""
    if (name, abi) in VNNI:
        vector = "int16" if name == "vnni512" else "int8"
        return VNNI[name, abi] + _VNNI_KERNEL.format(vector=vector)
    if name == "prefetch":
        return _PREFETCH.format(head=PREFETCH[abi])
    return SOURCES[name]


SOURCES = {
    "avx2": _AVX2,
    "dp4a": _DP4A,
    "emulated": _EMULATED,
    "block_read": _BLOCK_READ,
    "vload_half": _HALF,
    "arithmetic": _HEAD + _FMA,
    "vector arithmetic": _HEAD + _VECTOR_FMA,
    "llvm_fma": _LLVM_FMA,
    "conversions": _HEAD + _CONVERT,
}
