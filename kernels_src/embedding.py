"""Embeddings by token, from the weights that a tied LM head reads too."""

from __future__ import annotations

from ferro.dsl import kernel, tl


@kernel
def row_of(w, tokens, y, scale, t, k, V, K):
    token = tl.load(tokens[t])
    inside = (k < K) & (token >= 0) & (token < V)
    tl.store(y[t, k], tl.load(w[token, k], mask=inside, other=0.0) * scale, mask=k < K)


@kernel
def embed_q8(
    w: tl.q8[V, K],
    tokens: tl.ptr[tl.i32, T],
    y: tl.out[tl.f32, T, K],
    scale: tl.f32,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y[t] = w[tokens[t]] * scale; a token outside 0..V-1 gives zeros."""
    row_of(w, tokens, y, scale, tl.program_id(1, T), tl.block(0, K, BLOCK), V, K)


@kernel
def embed_q4(
    w: tl.q4[V, K],
    tokens: tl.ptr[tl.i32, T],
    y: tl.out[tl.f32, T, K],
    scale: tl.f32,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """The same from weights of 4 bits."""
    row_of(w, tokens, y, scale, tl.program_id(1, T), tl.block(0, K, BLOCK), V, K)


@kernel
def embed_f32(
    w: tl.ptr[tl.f32, K, V],
    tokens: tl.ptr[tl.i32, T],
    y: tl.out[tl.f32, T, K],
    scale: tl.f32,
    BLOCK: tl.schedule[64, 256, 1024] = 256,
):
    """y[t] = w[:, tokens[t]] * scale; a token outside 0..V-1 gives zeros."""
    t = tl.program_id(1, T)
    k = tl.block(0, K, BLOCK)
    token = tl.load(tokens[t])
    inside = (k < K) & (token >= 0) & (token < V)
    tl.store(y[t, k], tl.load(w[k, token], mask=inside, other=0.0) * scale, mask=k < K)
