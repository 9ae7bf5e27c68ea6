"""The schedule check: programs whose bits would depend on a tile size are refused, others pass."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ferro.dsl import CompileError, launch
from ferro.dsl.extents import evaluate
from ferro.dsl.interpreter import interpret
from ferro.dsl.kernel import KernelDefinition

B = "BLOCK: tl.schedule[32, 64, 128] = 64"
ROW = f"x: tl.ptr[f32, M, K], y: tl.out[f32, M], {B}"
VECTOR = f"x: tl.ptr[f32, N], y: tl.out[f32, N], {B}"
COUNT = f"y: tl.out[i32, N], n0: tl.i32, {B}"

# name: (parameters, body, code)
REFUSED: dict[str, tuple[str, str, str]] = {
    "sum_of_tile_sums": (ROW, """
row = tl.program_id(0, M)
total = tl.full([], 0.0, f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    v = tl.load(x[row, k], mask=k < K, other=0.0)
    total = total + tl.sum(v)
tl.store(y[row], total)
""", "FER511"),
    "program_id_stored": (COUNT, """
p = tl.program_id(0, tl.cdiv(N, BLOCK))
n = p * BLOCK + tl.arange(0, BLOCK)
tl.store(y[n], tl.zeros([BLOCK], i32) + p, mask=n < N)
""", "FER510"),
    "size_becomes_a_float": (VECTOR, """
n = tl.block(0, N, BLOCK)
tl.store(y[n], tl.full([BLOCK], 1.0, f32) * tl.i32(BLOCK).to(f32), mask=n < N)
""", "FER510"),
    "size_is_added": (COUNT, """
n = tl.block(0, N, BLOCK)
tl.store(y[n], n + BLOCK, mask=n < N)
""", "FER510"),
    "constexpr_branch": (VECTOR, """
n = tl.block(0, N, BLOCK)
v = tl.full([BLOCK], 1.0, f32)
if BLOCK > 32:
    v = v + 1.0
tl.store(y[n], v, mask=n < N)
""", "FER501"),
    "run_time_branch": (COUNT, """
n = tl.block(0, N, BLOCK)
if n0 > BLOCK:
    tl.store(y[n], tl.full([BLOCK], 1, i32), mask=n < N)
""", "FER510"),
    "unrolled_by_size": (VECTOR, """
n = tl.block(0, N, BLOCK)
v = tl.full([BLOCK], 1.0, f32)
for i in tl.static_range(BLOCK // 32):
    v = v + 1.0
tl.store(y[n], v, mask=n < N)
""", "FER501"),
    "loop_by_size": (VECTOR, """
n = tl.block(0, N, BLOCK)
v = tl.full([BLOCK], 1.0, f32)
for i in range(0, BLOCK):
    v = v + 1.0
tl.store(y[n], v, mask=n < N)
""", "FER514"),
    "mask_of_offsets": (VECTOR, """
n = tl.block(0, N, BLOCK)
tl.store(y[n], tl.full([BLOCK], 1.0, f32), mask=(n < N) & (tl.arange(0, BLOCK) < 5))
""", "FER510"),
    "where_of_offsets": (VECTOR, """
n = tl.block(0, N, BLOCK)
first = tl.arange(0, BLOCK) == 0
tl.store(y[n], tl.where(first, 1.0, 2.0), mask=n < N)
""", "FER510"),
    "address_of_tile": (VECTOR, """
n = tl.block(0, N, BLOCK)
p = tl.program_id(0, tl.cdiv(N, BLOCK))
tl.store(y[p], 1.0)
""", "FER510"),
    "load_at_tile_start": (VECTOR, """
for k0 in range(0, N, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    tl.store(y[k], tl.load(x[k], mask=k < N, other=0.0) * tl.load(x[k0]), mask=k < N)
""", "FER510"),
    "wrong_factor": (COUNT, """
n = tl.program_id(0, tl.cdiv(N, BLOCK)) * 48 + tl.arange(0, BLOCK)
tl.store(y[n], n, mask=n < N)
""", "FER510"),
    "wrong_count_of_programs": (COUNT, """
n = tl.program_id(0, tl.cdiv(N, BLOCK) + BLOCK) * BLOCK + tl.arange(0, BLOCK)
tl.store(y[n], n, mask=n < N)
""", "FER510"),
    "maximum_of_a_tile": (VECTOR, """
n = tl.block(0, N, BLOCK)
v = tl.load(x[n], mask=n < N, other=0.0)
tl.store(y[n], v - tl.max(v), mask=n < N)
""", "FER511"),
    "sum_of_a_constant_tile": (VECTOR, """
tl.store(y[0], tl.sum(tl.full([BLOCK], 1.0, f32)))
""", "FER511"),
    "product_of_tiles": ("x: tl.ptr[f32, M, K], y: tl.out[f32, M, M], " + B, """
m = tl.arange(0, 8)
k = tl.block(0, K, BLOCK)
v = tl.load(x[m[:, None], k[None, :]], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
tl.store(y[m[:, None], m[None, :]], tl.dot(v, v.T), mask=(m < M)[:, None] & (m < M)[None, :])
""", "FER511"),
    "two_coordinates_paired": (VECTOR, """
n = tl.block(0, N, BLOCK)
for k0 in range(0, N, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    tl.store(y[n], tl.load(x[k], mask=k < N, other=0.0), mask=(n < N) & (k < N))
""", "FER512"),
    "coordinate_paired_with_fixed": (VECTOR, """
n = tl.block(0, N, BLOCK)
w = tl.load(x[tl.arange(0, 64)], mask=tl.arange(0, 64) < N, other=0.0)
tl.store(y[n], w, mask=n < N)
""", "FER512"),
    "reshape_of_a_coordinate": (VECTOR, """
n = tl.block(0, N, BLOCK)
v = tl.reshape(tl.load(x[n], mask=n < N, other=0.0), [BLOCK // 2, 2])
s = tl.sum(v, axis=1)
tl.store(y[n], tl.join(s, s, how="pairs"), mask=n < N)
""", "FER512"),
    "halves_of_a_coordinate": (VECTOR, """
n = tl.block(0, N, BLOCK)
a, b = tl.split(tl.load(x[n], mask=n < N, other=0.0))
tl.store(y[n], tl.join(b, a), mask=n < N)
""", "FER512"),
    "tiles_counted": (COUNT, """
t = tl.full([], 0, i32)
for k0 in range(0, n0, BLOCK):
    t = t + 1
tl.store(y[0], t)
""", "FER514"),
    "last_tile_kept": (COUNT, """
last = 0
for k0 in range(0, n0, BLOCK):
    last = k0
tl.store(y[0], last)
""", "FER514"),
    "values_exchanged": (COUNT, """
a = 0
b = 1
for k0 in range(0, n0, BLOCK):
    t = a
    a = b
    b = t
tl.store(y[0], a)
""", "FER514"),
    "two_sums_in_one_state": (ROW, """
row = tl.program_id(0, M)
for c in tl.chunks(K, 4096):
    state = tl.partials()
    for k0 in range(c.start, c.stop, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, k], mask=k < c.stop, other=0.0)
        state = tl.accumulate(state, v)
        state = tl.accumulate(state, v * v)
    total = tl.combine(tl.add, tl.finish(state))
tl.store(y[row], total)
""", "FER514"),
    "running_maximum_used": (ROW, """
row = tl.program_id(0, M)
top = tl.full([], -tl.inf, f32)
seen = tl.full([], -tl.inf, f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    v = tl.load(x[row, k], mask=k < K, other=-tl.inf)
    top = tl.maximum(top, tl.max(v))
    seen = tl.maximum(seen, top * 0.5)
tl.store(y[row], top + seen)
""", "FER514"),
    "elements_carried": (VECTOR, """
top = tl.full([BLOCK], -tl.inf, f32)
for k0 in range(0, N, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    top = tl.maximum(top, tl.load(x[k], mask=k < N, other=-tl.inf))
tl.store(y[0], tl.max(top))
""", "FER514"),
    "accumulated_without_mask": (ROW, """
row = tl.program_id(0, M)
for c in tl.chunks(K, 4096):
    state = tl.partials()
    for k0 in range(c.start, c.stop, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, k], mask=k < c.stop, other=0.0)
        state = tl.accumulate(state, v + 1.0)
    total = tl.combine(tl.add, tl.finish(state))
tl.store(y[row], total)
""", "FER515"),
    "mask_past_the_chunk": (ROW, """
row = tl.program_id(0, M)
for c in tl.chunks(K, 100):
    state = tl.partials()
    for k0 in range(c.start, c.stop, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, k], mask=k < K, other=0.0)
        state = tl.accumulate(state, v, mask=k < K)
    total = tl.combine(tl.add, tl.finish(state))
tl.store(y[row], total)
""", "FER515"),
    "maximum_padded_with_zero": (ROW, """
row = tl.program_id(0, M)
top = tl.full([], -tl.inf, f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    top = tl.maximum(top, tl.max(tl.load(x[row, k], mask=k < K, other=0.0)))
tl.store(y[row], top)
""", "FER515"),
    "stored_past_the_end": (COUNT, """
for k0 in range(0, n0, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    tl.store(y[k], k, mask=k < N)
""", "FER515"),
    "stored_past_the_grid": (COUNT, """
n = tl.block(0, N - 5, BLOCK)
tl.store(y[n], n, mask=n < N)
""", "FER515"),
    "blocks_of_the_diagonal": (f"y: tl.out[i32, N, N], {B}", """
n = tl.block(0, N, BLOCK)
inside = (n < N)[:, None] & (n < N)[None, :]
tl.store(y[n[:, None], n[None, :]], n[:, None] + n[None, :], mask=inside)
""", "FER512"),
    "offsets_scaled_by_the_size": (f"y: tl.out[i32, N], {B}", """
n = tl.program_id(0, tl.cdiv(N, BLOCK)) * (BLOCK * BLOCK) + tl.arange(0, BLOCK) * BLOCK
m = tl.block(0, N, BLOCK)
tl.store(y[m], n, mask=m < N)
""", "FER510"),
    "size_summed_with_a_coordinate": (COUNT, """
t = tl.full([], 0, i32)
for k0 in range(0, n0, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    t = t + tl.sum(64 // BLOCK + k * 0, mask=k < n0)
tl.store(y[0], t)
""", "FER510"),
    "maximum_of_pairs_in_a_tile": (f"x: tl.ptr[f32, N], y: tl.out[f32, 1], {B}", """
top = tl.full([BLOCK], -tl.inf, f32)
for k0 in range(0, N, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    v = tl.load(x[k], mask=k < N, other=-tl.inf)
    top = tl.maximum(top, tl.max(v[:, None] + v[None, :], axis=0, mask=(k < N)[:, None]))
tl.store(y[0], tl.max(top))
""", "FER514"),
    "added_once_a_tile_in_memory": (f"x: tl.ptr[f32, N], y: tl.inout[f32, M], {B}", """
row = tl.program_id(0, M)
for k0 in range(0, N, BLOCK):
    tl.store(y[row], tl.load(y[row]) + 1.0)
""", "FER517"),
    "two_stores_that_overlap": (VECTOR, """
for k0 in range(0, N, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    tl.store(y[k], tl.load(x[k], mask=k < N), mask=k < N)
    tl.store(y[k + 1], 1.0, mask=k + 1 < N)
""", "FER517"),
    "index_that_grows_by_another_step": (VECTOR, """
k = tl.arange(0, BLOCK)
for i in range(0, tl.cdiv(N, BLOCK)):
    tl.store(y[k], tl.load(x[k], mask=k < N), mask=k < N)
    k += BLOCK // 2
""", "FER510"),
    "programs_taken_apart_in_two_ways": (f"y: tl.out[f32, M, N], {B}", """
p = tl.program_id(0, tl.cdiv(M, BLOCK) * tl.cdiv(N, BLOCK))
m = p // tl.cdiv(N, BLOCK) * BLOCK + tl.arange(0, BLOCK)
n = p % tl.cdiv(M, BLOCK) * BLOCK + tl.arange(0, BLOCK)
inside = (m < M)[:, None] & (n < N)[None, :]
tl.store(y[m[:, None], n[None, :]], 1.0, mask=inside)
""", "FER510"),
    "chunk_size": (VECTOR, """
for c in tl.chunks(N, BLOCK):
    k = c.start + tl.arange(0, 32)
    s = tl.sum(tl.load(x[k], mask=k < c.stop, other=0.0))
    t = tl.combine(tl.add, s)
tl.store(y[0], t)
""", "FER516"),
    "shifted_in_place": (f"x: tl.inout[f32, N], {B}", """
n = tl.block(0, N, BLOCK)
v = tl.load(x[n + 1], mask=n + 1 < N, other=0.0)
tl.store(x[n], v, mask=n < N)
""", "FER517"),
    "in_place_at_nothing": (f"y: tl.inout[f32, 256], {B}", """
for k0 in range(0, 256, BLOCK):
    n = k0 + tl.arange(0, BLOCK)
    i = n * 0
    tl.store(y[i], tl.load(y[i]) + 1.0)
""", "FER517"),
    "in_place_at_a_remainder": (f"y: tl.inout[f32, 256], {B}", """
for k0 in range(0, 256, BLOCK):
    n = k0 + tl.arange(0, BLOCK)
    i = n & 3
    tl.store(y[i], tl.load(y[i]) + 1.0)
""", "FER517"),
    "in_place_at_a_minimum": (f"y: tl.inout[f32, 256], {B}", """
for k0 in range(0, 256, BLOCK):
    n = k0 + tl.arange(0, BLOCK)
    i = tl.minimum(n, 7)
    tl.store(y[i], tl.load(y[i]) + 1.0)
""", "FER517"),
    "in_place_at_a_wrapped_multiple": (f"y: tl.inout[f32, 256], {B}", """
for k0 in range(0, 256, BLOCK):
    n = k0 + tl.arange(0, BLOCK)
    i = (n * 3) % 10
    tl.store(y[i], tl.load(y[i]) + 1.0)
""", "FER517"),
    "in_place_at_a_half": (f"y: tl.inout[f32, 256], {B}", """
for k0 in range(0, 256, BLOCK):
    n = k0 + tl.arange(0, BLOCK)
    i = n // 2
    tl.store(y[i], tl.load(y[i]) + 1.0)
""", "FER517"),
    "in_place_at_a_gathered_index": (f"at: tl.ptr[i32, 256], y: tl.inout[f32, N], {B}", """
for k0 in range(0, 256, BLOCK):
    n = k0 + tl.arange(0, BLOCK)
    i = tl.load(at[n])
    inside = (i >= 0) & (i < N)
    tl.store(y[i], tl.load(y[i], mask=inside) + 1.0, mask=inside)
""", "FER517"),
    "in_place_at_a_remainder_in_programs": (f"y: tl.inout[f32, 256], {B}", """
n = tl.block(0, 256, BLOCK)
tl.store(y[n & 3], tl.load(y[n & 3]) + 1.0)
""", "FER517"),
    "in_place_at_neighbours_in_turn": (f"y: tl.inout[f32, 258], {B}", """
for k0 in range(0, 256, BLOCK):
    n = k0 + tl.arange(0, BLOCK)
    for j in range(0, 3):
        tl.store(y[n + j], tl.load(y[n + j]) * 2.0 + n.to(f32))
""", "FER517"),
    "product_padded_with_zeros": ("x: tl.ptr[f32, M, K], y: tl.out[f32, M, M], " + B, """
m = tl.arange(0, 8)
part = tl.zeros([8, 8], f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    inside = (m < M)[:, None] & (k < K)[None, :]
    v = tl.load(x[m[:, None], k[None, :]], mask=inside, other=0.0)
    part = tl.dot(v, v.T, part)
tl.store(y[m[:, None], m[None, :]], part, mask=(m < M)[:, None] & (m < M)[None, :])
""", "FER518"),
}  # fmt: skip

# name: (parameters, body)
ACCEPTED: dict[str, tuple[str, str]] = {
    "elementwise": (VECTOR, """
n = tl.block(0, N, BLOCK)
tl.store(y[n], tl.load(x[n], mask=n < N) * 2.0 + n.to(f32), mask=n < N)
"""),
    "parts_meet_in_the_mask": (
        "x: tl.ptr[f32, N], y: tl.out[f32, N], BLOCK: tl.schedule[1, 8] = 8", """
p = tl.program_id(0, tl.cdiv(N, BLOCK))
o = tl.arange(0, BLOCK)
seen = o < N - p * BLOCK
tl.store(y[p * BLOCK + o], tl.load(x[o + p * BLOCK], mask=seen, other=0.0), mask=seen)
"""),
    "loop_in_a_program": (VECTOR, """
for k0 in range(0, N, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    tl.store(y[k], tl.load(x[k], mask=k < N), mask=k < N)
"""),
    "neighbours_and_reversal": (VECTOR, """
n = tl.block(0, N, BLOCK)
a = tl.load(x[n - 1], mask=(n >= 1) & (n < N), other=0.0)
b = tl.load(x[N - 1 - n], mask=n < N, other=0.0)
tl.store(y[n], a + b, mask=n < N)
"""),
    "fixed_extents": (
        "x: tl.ptr[f32, 96], y: tl.out[f32, 96], BLOCK: tl.schedule[1, 32, 96] = 32", """
for k0 in range(0, 96, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    tl.store(y[k], tl.load(x[k]) + 1.0)
"""),
    "fixed_number_of_programs": (
        "x: tl.ptr[f32, 100], y: tl.out[f32, 100], BLOCK: tl.schedule[1, 32, 128] = 32", """
n = tl.block(0, 100, BLOCK)
tl.store(y[n], tl.load(x[n], mask=n < 100), mask=n < 100)
"""),
    "rounded_up_extent": ("x: tl.ptr[f32, N], y: tl.out[f32, (N + 1) // 2], " + B, """
n = tl.block(0, (N + 1) // 2, BLOCK)
tl.store(y[n], tl.load(x[2 * n], mask=2 * n < N, other=0.0), mask=n < (N + 1) // 2)
"""),
    "partials": (ROW, """
row = tl.program_id(0, M)
for c in tl.chunks(K, 4096):
    state = tl.partials()
    for k0 in range(c.start, c.stop, BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        v = tl.load(x[row, k], mask=k < c.stop, other=0.0)
        state = tl.accumulate(state, v * v)
    total = tl.combine(tl.add, tl.finish(state))
tl.store(y[row], total)
"""),
    "maximum_carried": (ROW, """
row = tl.program_id(0, M)
top = tl.full([], -tl.inf, f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    top = tl.maximum(tl.max(tl.load(x[row, k], mask=k < K, other=-tl.inf)), top)
tl.store(y[row], top)
"""),
    "magnitudes_padded_with_the_initial_zero": (ROW, """
row = tl.program_id(0, M)
top = tl.full([], 0.0, f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    v = tl.where(k < K, tl.load(x[row, k], mask=k < K, other=5.0), 0.0)
    top = tl.maximum(top, tl.max(tl.abs(v)))
tl.store(y[row], top)
"""),
    "integers_added": (f"x: tl.ptr[i32, N], y: tl.out[i32, 1], {B}", """
t = tl.full([], 0, i32)
for k0 in range(0, N, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    v = tl.load(x[k], mask=k < N, other=0)
    t = t + tl.sum(v * v)
tl.store(y[0], t)
"""),
    "product_carried": ("x: tl.ptr[f32, M, K], y: tl.out[f32, M, M], " + B, """
m = tl.arange(0, 8)
part = tl.zeros([8, 8], f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    inside = (m < M)[:, None] & (k < K)[None, :]
    a = tl.load(x[m[:, None], k[None, :]], mask=inside, other=0.0)
    b = tl.load(x[m[:, None], k[None, :]], mask=inside, other=-0.0)
    part = tl.dot(a, b.T, part)
tl.store(y[m[:, None], m[None, :]], part, mask=(m < M)[:, None] & (m < M)[None, :])
"""),
    "sums_along_fixed_axes": ("x: tl.ptr[f32, M, 16], y: tl.out[f32, M], " + B, """
m = tl.block(0, M, BLOCK)
i = tl.arange(0, 16)
v = tl.load(x[m[:, None], i[None, :]], mask=(m < M)[:, None], other=0.0)
tl.store(y[m], tl.sum(v, axis=1), mask=m < M)
"""),
    "reshape_beside_a_coordinate": ("x: tl.ptr[f32, M, 16], y: tl.out[f32, M], " + B, """
m = tl.block(0, M, BLOCK)
i = tl.arange(0, 16)
v = tl.load(x[m[:, None], i[None, :]], mask=(m < M)[:, None], other=0.0)
w = tl.max(tl.reshape(v, [BLOCK, 4, 4]), axis=1)
tl.store(y[m], tl.sum(w, axis=1), mask=m < M)
"""),
    "rows_by_the_query_of_a_head": (f"x: tl.ptr[f32, N, 2], y: tl.out[f32, N, 2], {B}", """
r = tl.block(0, N * 2, BLOCK)
n = r // 2
h = r % 2
tl.store(y[n, h], tl.load(x[n, h], mask=n < N, other=0.0) + 1.0, mask=n < N)
"""),
    "in_place": (f"x: tl.inout[f32, N], {B}", """
n = tl.block(0, N, BLOCK)
tl.store(x[n], tl.load(x[n], mask=n < N) * 2.0, mask=n < N)
"""),
    "in_place_at_groups_of_a_coordinate": (f"x: tl.inout[f32, 1024], {B}", """
for k0 in range(0, 256, BLOCK):
    n = k0 + tl.arange(0, BLOCK)
    for j in range(0, 4):
        i = 4 * n + j
        tl.store(x[i], tl.load(x[i]) * 2.0 + n.to(f32), mask=n < 256)
"""),
    "in_place_in_flat_rows": (f"z: tl.ptr[f32, M, K], x: tl.inout[f32, M * K], {B}", """
row = tl.program_id(0, M)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    i = row * K + k
    tl.store(x[i], tl.load(x[i], mask=k < K) * 2.0, mask=k < K)
"""),
    "halves_in_place": (f"x: tl.inout[f32, 2 * N], c: tl.ptr[f32, N], {B}", """
n = tl.block(0, N, BLOCK)
a = tl.load(x[n], mask=n < N)
b = tl.load(x[n + N], mask=n < N)
tl.store(x[n], a + tl.load(c[n], mask=n < N), mask=n < N)
tl.store(x[n + N], b - a, mask=n < N)
"""),
    "pairs_in_place": (f"x: tl.inout[f32, 2 * N], c: tl.ptr[f32, N], {B}", """
n = tl.block(0, N, BLOCK)
a = tl.load(x[2 * n], mask=n < N)
b = tl.load(x[2 * n + 1], mask=n < N)
tl.store(x[2 * n], a + tl.load(c[n], mask=n < N), mask=n < N)
tl.store(x[2 * n + 1], b - a, mask=n < N)
"""),
    "gathered_rows": (f"x: tl.ptr[f32, N], at: tl.ptr[i32, T], y: tl.out[f32, T], {B}", """
t = tl.block(0, T, BLOCK)
i = tl.load(at[t], mask=t < T, other=0)
tl.store(y[t], tl.load(x[i], mask=(i >= 0) & (i < N), other=0.0), mask=t < T)
"""),
    "turns_counted": ("x: tl.ptr[f32, N], y: tl.out[f32, N], BLOCK: tl.schedule[1, 4, 64] = 4", """
for i in range(0, tl.cdiv(N, BLOCK)):
    k = i * BLOCK + tl.arange(0, BLOCK)
    tl.store(y[k], tl.load(x[k], mask=k < N), mask=k < N)
"""),
    "index_that_grows": (f"x: tl.ptr[f32, M, K], y: tl.out[f32, M], {B}", """
row = tl.program_id(0, M)
k = tl.arange(0, BLOCK)
top = tl.full([], -tl.inf, f32)
for i in range(0, tl.cdiv(K, BLOCK)):
    top = tl.maximum(top, tl.max(tl.load(x[row, k], mask=k < K, other=-tl.inf)))
    k += BLOCK
tl.store(y[row], top)
"""),
    "index_that_grows_beside_the_counter": (VECTOR, """
k = tl.arange(0, BLOCK)
for k0 in range(0, N, BLOCK):
    tl.store(y[k], tl.load(x[k], mask=k < N), mask=k < N)
    k = k + BLOCK
"""),
    "programs_of_two_extents": (
        "x: tl.ptr[f32, M, N], y: tl.out[f32, M, N], BM: tl.schedule[1, 2] = 2, " + B, """
p = tl.program_id(0, tl.cdiv(M, BM) * tl.cdiv(N, BLOCK))
m = p // tl.cdiv(N, BLOCK) * BM + tl.arange(0, BM)
n = p % tl.cdiv(N, BLOCK) * BLOCK + tl.arange(0, BLOCK)
inside = (m < M)[:, None] & (n < N)[None, :]
v = tl.load(x[m[:, None], n[None, :]], mask=inside)
tl.store(y[m[:, None], n[None, :]], v + 1.0, mask=inside)
"""),
    "zero_of_a_padded_product_made_one": ("x: tl.ptr[f32, M, K], y: tl.out[f32, M, M], " + B, """
m = tl.arange(0, 8)
part = tl.zeros([8, 8], f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    inside = (m < M)[:, None] & (k < K)[None, :]
    v = tl.load(x[m[:, None], k[None, :]], mask=inside, other=0.0)
    part = tl.dot(v * 1e-30, -(v * 1e-30).T, part)
whole = part + 0.0
tl.store(y[m[:, None], m[None, :]], whole, mask=(m < M)[:, None] & (m < M)[None, :])
"""),
    "written_in_one_loop_and_read_in_the_next": (f"x: tl.inout[f32, M, K], {B}", """
row = tl.program_id(0, M)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    tl.store(x[row, k], k.to(f32), mask=k < K)
top = tl.full([], 0.0, f32)
for k0 in range(0, K, BLOCK):
    k = k0 + tl.arange(0, BLOCK)
    top = tl.maximum(top, tl.max(tl.load(x[row, K - 1 - k], mask=k < K, other=0.0)))
tl.store(x[row, 0], top)
"""),
    "an_axis_of_one_element": ("x: tl.ptr[f32, M, 1], y: tl.out[f32, M], " + B, """
m = tl.block(0, M, BLOCK)
i = tl.arange(0, 1)
v = tl.load(x[m[:, None], i[None, :]], mask=(m < M)[:, None], other=0.0)
tl.store(y[m], tl.sum(v, axis=1), mask=m < M)
"""),
    "static_assert_on_a_size": (VECTOR, """
tl.static_assert(BLOCK % 32 == 0, "whole partials")
n = tl.block(0, N, BLOCK)
tl.store(y[n], tl.load(x[n], mask=n < N), mask=n < N)
"""),
    "taps": (f"x: tl.ptr[f32, N], w: tl.ptr[f32, 3], y: tl.out[f32, N], {B}", """
n = tl.block(0, N, BLOCK)
acc = tl.zeros([BLOCK], f32)
for tap in range(0, 3):
    k = n + tap - 1
    v = tl.load(x[k], mask=(k >= 0) & (k < N), other=0.0)
    acc = tl.fma(v, tl.load(w[tap]), acc)
tl.store(y[n], acc, mask=n < N)
"""),
}  # fmt: skip


def definition(parameters: str, body: str) -> KernelDefinition:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return KernelDefinition.from_source(f"def f({parameters}):\n{lines}\n", "kernel.py")


def schedules(made: KernelDefinition) -> list[dict[str, Any]]:
    names = list(made.schedule)
    choices = [made.schedule[n].choices for n in names]
    return [dict(zip(names, c, strict=True)) for c in itertools.product(*choices)]


@pytest.mark.parametrize("name", REFUSED)
def test_refused_under_every_schedule(name: str) -> None:
    parameters, body, code = REFUSED[name]
    made = definition(parameters, body)
    for constants in schedules(made):
        if name == "coordinate_paired_with_fixed" and constants["BLOCK"] != 64:
            continue  # the shapes do not fit to begin with
        with pytest.raises(CompileError) as caught:
            made.specialise(**constants)
        assert code in {d.code for d in caught.value.diagnostics}
        for finding in caught.value.diagnostics:
            assert finding.help
            assert finding.span.file == "kernel.py"
            assert finding.span.line > 1


@pytest.mark.parametrize(
    "name",
    ["sum_of_tile_sums", "program_id_stored", "product_padded_with_zeros", "stored_past_the_end",
     "two_coordinates_paired", "tiles_counted", "shifted_in_place", "maximum_of_a_tile",
     "accumulated_without_mask", "stored_past_the_grid"],
)  # fmt: skip
def test_message(name: str, golden: Any) -> None:
    parameters, body, _ = REFUSED[name]
    with pytest.raises(CompileError) as caught:
        definition(parameters, body).specialise()
    golden(f"schedule_{name}", caught.value.text + "\n")


def test_a_sum_over_tiles_is_told_of_the_ordered_walks() -> None:
    parameters, body, _ = REFUSED["sum_of_tile_sums"]
    with pytest.raises(CompileError) as caught:
        definition(parameters, body).specialise()
    (finding,) = caught.value.diagnostics
    assert "tl.chunks" in finding.help
    assert "tl.accumulate" in finding.help
    assert finding.span.line == 7


def results(made: KernelDefinition, constants: dict[str, Any], seed: int) -> list[bytes]:
    """Every buffer after a run with drawn numbers, as bytes."""
    random = np.random.default_rng(seed)
    sizes = {"M": 3, "K": int(random.integers(1, 200)), "N": int(random.integers(1, 200)), "T": 77}
    made_kernel = made.specialise(**constants)
    arguments: dict[str, Any] = {}
    for buffer in made_kernel.buffers:
        shape = tuple(evaluate(e, sizes) for e in buffer.extents)
        whole = buffer.dtype.is_int  # type: ignore[union-attr]
        drawn = random.integers(-3, 60, shape) if whole else random.normal(size=shape)
        arguments[buffer.name] = drawn.astype(buffer.dtype.numpy)  # type: ignore[union-attr]
    bound = launch.bind(made_kernel, arguments)
    interpret(made_kernel, bound.buffers, bound.scalars, bound.grid)
    return [np.asarray(a).tobytes() for a in bound.buffers.values()]


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_programs_give_equal_bits_under_every_schedule(name: str) -> None:
    made = definition(*ACCEPTED[name])
    for seed in (1, 2):
        first, *others = [results(made, c, seed) for c in schedules(made)]
        assert all(other == first for other in others)


def test_a_kernel_without_schedule_is_not_looked_at() -> None:
    parameters, body, _ = REFUSED["sum_of_tile_sums"]
    definition(parameters.replace("tl.schedule[32, 64, 128]", "tl.const"), body).specialise()


MASKED = {
    "store": (COUNT, "for k0 in range(0, n0, BLOCK):\n    k = k0 + tl.arange(0, BLOCK)\n"
              "    tl.store(y[k], k, mask=k < N)", "add `& (k < n0)` to the mask of the store"),
    "reduction": (*REFUSED["mask_past_the_chunk"][:2],
                  "add `& (k < c.stop)` to the mask of the reduction"),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKED)
def test_what_has_a_mask_for_something_else_is_told_what_to_add(name: str) -> None:
    parameters, body, wanted = MASKED[name]
    with pytest.raises(CompileError, match="FER515") as caught:
        definition(parameters, body).specialise()
    assert wanted in str(caught.value)
