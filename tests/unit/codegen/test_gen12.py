"""Counting Gen12 assembly: on a text written here, and on what `ocloc` really makes."""

from __future__ import annotations

import pytest

from ferro.codegen.gen12 import Gen12Error, available, local_memory, parse, statistics

ASSEMBLY = """\
//.kernel product
//.platform TGLLP
//.thread_config numGRF=128, numAcc=2, numSWSB=16
//.instCount 13
//.spill size 64
//.private memory size 256
_main:
(W)     mov (8|M0)               r93.0<1>:ud   r0.0<1;1,0>:ud                      // $1
_0_013:
(W)     add (1|M0)               r2.0<1>:d     r2.0<0;1,0>:d     512:w             // $2
_0_014:
        sync.nop                             null                {Compacted,$14.dst} // $3
        send.dc1 (16|M0)         r55      r7      null    0x0    0x04205E00   {$0} // $4
        dp4a (16|M0)             r4.0<1>:d     0:w    r81.0<8;1>:d      r76.2<0>:d // $5
        dp4a (8|M0)              r6.0<1>:d     0:w    r81.0<8;1>:d      r76.2<0>:d // $6
        mad (16|M0)              r58.0<1>:f    r114.0<8;1>:f     r50.0<8;1>:f      // $7
(~f1.0) break (16|M0)                        _product_cf        _product_cf        // $8
_product_cf:
(f1.0)  while (16|M0)                        _0_014                                // $9
_0_015:
        add (32|M0)              r98.0<1>:f    r98.0<8;8,1>:f    r107.0<8;8,1>:f   // $10
(W&f1.1) jmpi _0_013                                                               // $11
_0_016:
(W)     send.ts (8|M0)           null     r127    null    0x0    0x02000010   {EOT} // $12
"""

KERNEL = """\
__attribute__((intel_reqd_sub_group_size(16)))
__kernel void product(__global const uint *w, __global const uint *x, __global int *y, int k) {
  __local int shared[2][16];
  int lane = get_local_id(0), sum = 0;
  for (int i = 0; i < k; i++)
    sum = dot_acc_sat_4x8packed_ss_int(w[i * 16 + lane], x[i], sum);
  shared[1][lane] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  y[get_global_id(0)] = shared[1][15 - lane];
}
__kernel void plain(__global float *y) { y[get_global_id(0)] = 1.0f; }
"""


def test_headers_and_totals() -> None:
    read = parse(ASSEMBLY, simd=16, local={"product": 128})
    assert (read.name, read.simd, read.grf) == ("product", 16, 128)
    assert (read.spill, read.private, read.local) == (64, 256, 128)
    assert (read.instructions, read.sends) == (12, 2)


def test_cycles_by_width_and_sends_apart() -> None:
    read = parse(ASSEMBLY, simd=16)
    inner = read.loops[1]
    assert (inner.label, inner.depth, inner.innermost) == ("_0_014", 2, True)
    # sync 1, dp4a 2 + 1, mad 2, break 2, while 2; the send is counted apart
    assert (inner.cycles, inner.sends, inner.instructions) == (10, 1, 7)
    assert (inner.dp4a, inner.dp4a_cycles, inner.dp4a_share) == (2, 3, 0.3)


def test_outer_loop_holds_the_inner_one() -> None:
    read = parse(ASSEMBLY, simd=16)
    outer = read.loops[0]
    assert (outer.label, outer.depth, outer.innermost) == ("_0_013", 1, False)
    assert outer.cycles == 1 + 10 + 4 + 1
    assert read.dot_loop is read.loops[1]


def test_kernel_without_dot_has_no_dot_loop() -> None:
    assert parse(ASSEMBLY.replace("dp4a", "mac "), simd=16).dot_loop is None


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        ("[16 x float]", 64),
        ("[4 x [8 x i32]]", 128),
        ("[16 x <4 x i8>]", 64),
        ("i16", 2),
    ],
)
def test_local_memory_sizes(declared: str, size: int) -> None:
    line = f'@mm.tile = addrspace(3) global {declared} undef, section "localSLM", align 4\n'
    assert local_memory(line) == {"mm": size}
    assert local_memory(line + line.replace("tile", "other")) == {"mm": 2 * size}


needs_ocloc = pytest.mark.skipif(not available(), reason="`ocloc` is not installed")


@needs_ocloc
def test_real_kernel() -> None:
    product, plain = statistics(KERNEL)
    assert (product.name, product.simd, product.spill, product.local) == ("product", 16, 0, 128)
    assert product.dot_loop is not None
    assert 0 < product.dot_loop.dp4a_share < 1
    assert (plain.name, plain.loops, plain.local) == ("plain", (), 0)


@needs_ocloc
def test_real_spill_is_seen() -> None:
    body = "".join(f"float a{i} = x[{i} + g * k];" for i in range(200))
    step = "".join(f"a{i} = fma(a{i}, b, a{(i + 1) % 200});" for i in range(200))
    end = "".join(f"x[{i} + g * k] = a{i};" for i in range(200))
    source = f"""
    __kernel void wide(__global float *x, __global const float *y, int k) {{
      int g = get_global_id(0); {body}
      for (int i = 0; i < k; i++) {{ float b = y[i * 7 + g]; {step} }}
      {end} }}"""
    assert statistics(source)[0].spill > 0


@needs_ocloc
def test_refused_source_gives_the_log() -> None:
    with pytest.raises(Gen12Error, match="no_such_thing"):
        statistics("__kernel void bad(__global int *y) { y[0] = no_such_thing; }")


def test_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Gen12Error, match="apt-get install intel-opencl-icd"):
        statistics(KERNEL)
