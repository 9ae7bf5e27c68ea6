"""Names that mean something in OpenCL C may be used for everything in a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from ferro.dsl.kernel import KernelDefinition
from ferro.runtime import open_device
from tests.conformance import assert_same_bits
from tests.stacks import Stack

KEYWORDS = """auto char const default do double enum extern float goto inline int long register
restrict short signed sizeof static struct switch typedef union unsigned void
volatile asm typeof kernel constant local private read_only write_only read_write
uniform pipe complex imaginary bool half quad true_ unix linux i386 this template
namespace class_ new delete virtual public operator typename friend using thread
constexpr noexcept auto_type bitand bitor xor compl"""
TYPES = """sampler_t event_t queue_t ndrange_t clk_event_t reserve_id_t image2d_t image3d_t
size_t ptrdiff_t intptr_t uintptr_t cl_mem_fence_flags memory_order memory_scope
atomic_int atomic_flag uchar ushort uint ulong half2 half16 char3 uint8 float4
double2 long16 int2 bool4 quad8 va_list image1d_buffer_t bfloat16 float16 int8 int16
int32 int64 uint64 size_type max_align_t nullptr_t"""
MACROS = """NULL NAN INFINITY MAXFLOAT HUGE_VAL HUGE_VALF FLT_MAX FLT_EPSILON FLT_DIG DBL_MAX
HALF_MAX CHAR_BIT CHAR_MAX SCHAR_MIN UCHAR_MAX SHRT_MAX USHRT_MAX INT_MAX INT_MIN
UINT_MAX LONG_MAX ULONG_MAX M_PI M_E M_PI_F M_LOG2E M_SQRT2 CLK_LOCAL_MEM_FENCE
CLK_GLOBAL_MEM_FENCE CLK_IMAGE_MEM_FENCE CLK_NORMALIZED_COORDS_TRUE
CLK_FILTER_LINEAR CLK_R CLK_RGBA CLK_FLOAT CLK_NULL_QUEUE FP_FAST_FMA FP_FAST_FMAF
FP_ILOGB0 FP_ILOGBNAN FP_CONTRACT CL_VERSION_1_2 ATOMIC_VAR_INIT ATOMIC_FLAG_INIT
EMBEDDED_PROFILE OPENCL_VERSION UNROLL IOTA LANES cl_khr_fp64 cl_khr_fp16 SIZE_MAX
INT8_MAX memory_order_relaxed memory_scope_device kernel_exec CLK_sRGB CHAR_MIN_
LLONG_MAX BIT DOT"""
FUNCTIONS = """min max clamp mix step sign dot cross length distance normalize select any all
shuffle shuffle2 bitselect isnan isinf isequal isless isgreater signbit fma mad
mad24 mul24 mad_hi mul_hi mad_sat add_sat sub_sat hadd rhadd rotate clz ctz popcount
upsample abs abs_diff fabs fmin fmax fmod fract frexp ldexp ilogb logb modf remquo
remainder rint round trunc floor ceil copysign nan nextafter pow pown powr rootn exp
exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt cbrt hypot sin cos tan asin acos
atan atan2 sinh cosh tanh erf erfc tgamma lgamma sincos sinpi cospi degrees radians
smoothstep native_exp half_exp as_float as_int convert_int4 convert_float vload4
vload8 vstore4 vload_half vstore_half barrier mem_fence read_mem_fence prefetch
async_work_group_copy wait_group_events work_group_barrier work_group_reduce_add
sub_group_broadcast sub_group_all get_global_id get_local_id get_group_id
get_global_size get_work_dim atomic_add atomic_xchg atom_add printf read_imagef
vec_step main index rindex y0 y1 j0 j1 jn yn gamma signgam div ldiv
intel_sub_group_shuffle arm_dot ferro_exp lane lanes group program local_id scratch
name stride i i0 t s v n w lid gid acc partial sum"""
NAMES = f"{KEYWORDS} {TYPES} {MACROS} {FUNCTIONS}".split()

PIECES = [NAMES[start : start + 40] for start in range(0, len(NAMES), 40)]


def kernel_with(names: list[str]) -> KernelDefinition:
    """A kernel whose name, scalars, buffers, dimensions and variables are all called by ``names``.

    Each value is used twice, so that it gets a variable of its own in C.
    """
    first, buffer, extent, number, *variables = names
    steps = "".join(
        f"    {name} = tl.exp({last}) - {last} * {number}\n"
        f"    {name} = tl.where({name} > {last}, tl.rint({name}), tl.minimum({name}, {last}))\n"
        for last, name in zip([buffer + "_", *variables], variables, strict=False)
    )
    return KernelDefinition.from_source(
        f"def {first}({buffer}: tl.ptr[f32, {extent}], out_: tl.out[f32, {extent}],"
        f" {number}: tl.f32):\n"
        f"    at_ = tl.block(0, {extent}, 32)\n"
        f"    {buffer}_ = tl.load({buffer}[at_], mask=at_ < {extent}, other=0.5)\n"
        f"{steps}"
        f"    tl.store(out_[at_], {variables[-1]}, mask=at_ < {extent})\n",
        f"{first}.cl",
    )


@pytest.mark.device
@pytest.mark.parametrize("number", range(len(PIECES)))
def test_names_of_opencl(number: int, quick_stack: Stack) -> None:
    names = PIECES[number]
    for turned in (names, names[3:] + names[:3]):
        kernel, x = kernel_with(turned), np.linspace(-1, 1, 50, dtype=np.float32)
        got, want = np.zeros_like(x), np.zeros_like(x)
        given = {turned[1]: x, turned[3]: 0.25}
        open_device("interpreter").run(kernel, out_=want, **given)
        quick_stack(kernel, out_=got, **given)
        assert_same_bits(got, want, turned[0])
