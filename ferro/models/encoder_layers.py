"""The operations of passes that see whole inputs: attention and convolutions in both directions."""

from __future__ import annotations

import math
from typing import Any

from ferro.models.cache import KINDS
from ferro.models.loaded import Loaded
from ferro.models.operations import EVERY_KEY, Operations, Rows
from ferro.models.packing import QUERIES, Shape, upload
from ferro.models.scratch import Scratch
from kernels_src.matmul import matmul
from kernels_src.norms import layernorm, rmsnorm
from kernels_src.pooling import pool_mean
from kernels_src.rows import add_rows
from kernels_src.shortconv import shortconv_centred, shortconv_centred_a8
from kernels_src.vectors import activate_multiply

MOST_WORK = 1 << 29  # products of two numbers for the scores of a launch: some 10 to 100 ms


class EncoderLayers(Operations):
    """Operations on the rows of one pass of an encoder. Keys and values stay in the pass."""

    def __init__(self, model: Loaded, shape: Shape, scratch: Scratch) -> None:
        super().__init__(model, upload(model.device, shape), scratch)
        self._shape = shape

    def attention(self, i: int, qkv: Rows, norm_values: bool = False) -> Rows:
        """softmax(q k^T * scale) v of layer ``i``, as activations. Row p of an input sees all of
        it, or the rows p - window // 2 to p + window // 2."""
        layer = self._made.layers[i]
        shape = (qkv.shape[0], layer.kv_heads, layer.head)
        kept = {"k": self.scratch.array("keys", *shape), "v": self.scratch.array("values", *shape)}
        reach = layer.window // 2 if layer.window else EVERY_KEY
        longest = self._shape.longest
        seen = {"longest": longest, "most": longest, "left": reach, "right": reach}
        return self._attention(i, qkv, KINDS["f32"], kept, {"NORM_V": norm_values}, seen)

    def _attend(self, kernel: Any, q: Rows, out: Rows, **arguments: Any) -> None:
        """The queries of a long input in several launches, of which none takes long: between them
        others may use the device. Blocks of queries and chunks of keys stay the same, and with
        them all bits."""
        rows, heads, head = q.shape
        reach = arguments["right"]  # as far as to the left
        most = MOST_WORK // (min(rows, 2 * reach + 1) * heads * head) // QUERIES * QUERIES
        most = max(most, QUERIES)
        if not self._shape.blocks or most >= rows:
            super()._attend(kernel, q, out, **arguments)
            return
        for first in range(0, rows, most):
            # keys that are seen; few different shapes, since each is proved to be in range once
            low = max(0, first - reach) // QUERIES * QUERIES
            high = min(first + most + reach, rows)
            # the last query is at the last key, unless that makes no difference
            stop = high if reach < rows else min(first + most, rows)
            seen = {name: arguments[name].part(low, high) for name in ("k", "v")}
            self._run(
                kernel,
                q=q.part(first, stop),
                starts=self._rest(first),
                keys=self._rest(low).reshape(1, 2),
                out=out.part(first, stop),
                **{**arguments, **seen, "longest": most},
            )

    def _rest(self, row: int) -> Any:
        """0, and how many rows the only input has from ``row`` on: int32 [2]."""
        block = row // QUERIES
        rest = self.inputs["rest"].part(block, block + 1)
        return rest.reshape(rest.shape[1]).part(0, 2)

    def short_convolution(self, i: int, bcx: Rows) -> Rows:
        """C * conv(B * X) of layer ``i`` with as many taps before a row as behind it, as
        activations."""
        y = self._activations("convolved", bcx.shape[0], self._made.width)
        self._run(
            shortconv_centred_a8 if self._quantised else shortconv_centred,
            bcx=bcx,
            w=self._weight(f"blk.{i}.shortconv.conv"),
            starts=self.inputs["starts"],
            y=y,
        )
        return y

    def layer_norm(self, name: str, x: Rows, eps: float) -> Rows:
        """(x - mean) / sqrt(variance + eps) * w + bias, as activations."""
        y = self.scratch.array("layer normed", *x.shape)
        self._run(layernorm, x=x, w=self._weight(name), b=self._bias(name), y=y, eps=eps)
        return self.activated("layer normed", y)

    def norm_rows(self, name: str, x: Rows, eps: float) -> Rows:
        """x / sqrt(mean(x^2) + eps) * w, as float32."""
        y = self.scratch.array("normed rows", *x.shape)
        self._run(rmsnorm, x=x, w=self._weight(name), y=y, eps=eps)
        return y

    def multiplied(self, x: Rows, by: Rows, act: str) -> Rows:
        """act(x) * by, as activations."""
        y = self.scratch.array("multiplied", *x.shape)
        flat = (each.reshape(math.prod(x.shape)) for each in (x, by, y))
        self._run(activate_multiply, **dict(zip(("gate", "up", "out"), flat, strict=True)), ACT=act)
        return self.activated("multiplied", y)

    def add_kinds(self, name: str, x: Rows) -> Rows:
        """Every row plus that of a table for the kind of its input."""
        y = self.scratch.array("with kinds", *x.shape)
        table, kinds = self._weight(name), self.inputs["kinds"]
        self._run(add_rows, x=x, table=table, rows=kinds, y=y)
        return y

    def score(self, name: str, x: Rows) -> Rows:
        """w x + bias of float32 rows [rows, 1], in float32 whatever other weights are."""
        y = self.scratch.array("score", x.shape[0], 1)
        w = self._weight(name).reshape(x.shape[1], 1)
        self._run(matmul, w=w, x=x, y=y, bias=self._bias(name))
        return y

    def pooled(self, x: Rows) -> Rows:
        """The mean of the rows of each input [inputs, columns]; 0 for one that is empty."""
        y = self.scratch.array("pooled", self._shape.inputs, x.shape[1])
        self._run(pool_mean, x=x, starts=self.inputs["starts"], y=y)
        return y
