"""Convolutions and pooling over time and over images."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def depthwise(
    x: tl.ptr[tl.f32, T, C],
    w: tl.ptr[tl.f32, 9, C],
    y: tl.out[tl.f32, T, C],
    BT: tl.schedule[1, 2, 4] = 2,
    BC: tl.schedule[16, 32, 64] = 32,
):
    """Each channel with its own 9 taps, centred."""
    c = tl.block(0, C, BC)
    t = tl.block(1, T, BT)
    acc = tl.zeros([BT, BC], tl.f32)
    for tap in tl.static_range(9):
        at = t + tap - 4
        inside = ((at >= 0) & (at < T))[:, None] & (c < C)[None, :]
        v = tl.load(x[at[:, None], c[None, :]], mask=inside, other=0.0)
        acc = tl.fma(v, tl.load(w[tap, c], mask=c < C, other=0.0)[None, :], acc)
    tl.store(y[t[:, None], c[None, :]], acc, mask=(t < T)[:, None] & (c < C)[None, :])


@kernel
def conv3x3(
    x: tl.ptr[tl.f32, H, W, CI],
    w: tl.ptr[tl.f32, 3, 3, CI, CO],
    y: tl.out[tl.f32, (H + 1) // 2, (W + 1) // 2, CO],
    BW: tl.schedule[1, 2, 4] = 2,
    BC: tl.schedule[16, 32] = 16,
):
    """3 x 3, stride 2, one row and column of zeros around."""
    o = tl.block(0, CO, BC)
    col = tl.block(1, (W + 1) // 2, BW)
    row = tl.program_id(2, (H + 1) // 2)
    acc = tl.zeros([BW, BC], tl.f32)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            h = 2 * row + dy - 1
            v = 2 * col + dx - 1
            inside = (v >= 0) & (v < W) & (h >= 0) & (h < H)
            for i in range(CI):
                a = tl.load(x[h, v, i], mask=inside, other=0.0)
                b = tl.load(w[dy, dx, i, o], mask=o < CO, other=0.0)
                acc = tl.fma(a[:, None], b[None, :], acc)
    kept = (col < (W + 1) // 2)[:, None] & (o < CO)[None, :]
    tl.store(y[row, col[:, None], o[None, :]], acc, mask=kept)


@kernel
def max_pool(
    x: tl.ptr[tl.f32, H, W, C],
    y: tl.out[tl.f32, H // 2, W // 2, C],
    BC: tl.schedule[16, 32, 64] = 16,
):
    """The largest of each 2 x 2 square; an odd last row or column is left out."""
    c = tl.block(0, C, BC)
    col = tl.program_id(1, W // 2)
    row = tl.program_id(2, H // 2)
    best = tl.full([BC], -tl.inf, tl.f32)
    for dy in tl.static_range(2):
        for dx in tl.static_range(2):
            best = tl.maximum(best, tl.load(x[2 * row + dy, 2 * col + dx, c], mask=c < C))
    tl.store(y[row, col, c], best, mask=c < C)


@kernel
def short_conv(
    bcx: tl.ptr[tl.f32, T, 3 * C],
    w: tl.ptr[tl.f32, C, 3],
    state: tl.ptr[tl.f32, B, 2, C],
    starts: tl.ptr[tl.i32, B + 1],
    y: tl.out[tl.f32, T, C],
    new_state: tl.out[tl.f32, B, 2, C],
    longest: tl.i32[0, 1048576],
    BC: tl.schedule[16, 32, 64] = 32,
):
    """Gated causal convolution of 3 taps over packed sequences that continue from a state."""
    c = tl.block(0, C, BC)
    local = tl.program_id(1, longest)
    s = tl.program_id(2, B)
    begin = tl.clamp(tl.load(starts[s]), 0, T)
    count = tl.clamp(tl.load(starts[s + 1]), 0, T) - begin
    t = begin + local
    live = (local < count) & (t < T) & (c < C)
    acc = tl.zeros([BC], tl.f32)
    for tap in tl.static_range(3):
        back = 2 - tap
        here = live & (local >= back) & (t >= back)
        b = tl.load(bcx[t - back, c], mask=here, other=0.0)
        v = tl.load(bcx[t - back, c + 2 * C], mask=here, other=0.0)
        earlier = live & (local < back)
        old = tl.load(state[s, local + tap, c], mask=earlier, other=0.0)
        bx = tl.where(local < back, old, b * v)
        acc = tl.fma(bx, tl.load(w[c, tap], mask=c < C, other=0.0), acc)
        if tap > 0:
            tl.store(new_state[s, tap - 1, c], bx, mask=live & (local == count - 1))
    gate = tl.load(bcx[t, c + C], mask=live, other=0.0)
    tl.store(y[t, c], gate * acc, mask=live)
