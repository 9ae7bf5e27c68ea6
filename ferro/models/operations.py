"""The operations that every forward pass is written in.

``Operations`` launches them for one shape of pass, one kernel or a few each, and gives the buffer
of the result. *Activations* are what products take: int8 rows with scales where weights are packed,
plain float32 where they are float32. Rows that belong to no sequence are computed like the others
and never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferro.models.cache import Kind
from ferro.models.hyperparameters import EMBEDDING
from ferro.models.loaded import Loaded, rotation
from ferro.models.scratch import Scratch
from ferro.models.uploads import Upload
from kernels_src.embedding import embed_f32, embed_q4, embed_q8
from kernels_src.matmul import gated, gated_q8_a8, matmul, matmul_q8
from kernels_src.matmul_q4 import gated_q4_a8, matmul_q4
from kernels_src.norms import rmsnorm, rmsnorm_a8, rmsnorm_add
from kernels_src.quantise import quantise
from kernels_src.rows import take_rows
from kernels_src.vectors import activate_multiply

Rows = Any  # a buffer of the pass: float32 [rows, columns], or activations
Kept = Mapping[str, Any]  # buffers of keys and values by their names in kernels
Numbers = Mapping[str, Any]  # arguments of kernels that are no buffers
EVERY_KEY = 2**30 - 1


@dataclass(frozen=True)
class Kernels:
    """The kernels for weights of one format; their parameters have the same names."""

    embed: Any
    product: Any
    gated: Any


KERNELS = {
    "q8": Kernels(embed_q8, matmul_q8, gated_q8_a8),
    "q4": Kernels(embed_q4, matmul_q4, gated_q4_a8),
    "": Kernels(embed_f32, matmul, gated),
}


class Operations:
    """Operations on the rows of one pass, which are ``inputs["tokens"]`` at first."""

    def __init__(self, model: Loaded, inputs: Upload, scratch: Scratch) -> None:
        self._model, self._made, self.inputs = model, model.made, inputs
        self._quantised, self.scratch = model.quantised, scratch

    def has(self, name: str) -> bool:
        """Whether the model has weights of that name."""
        return f"{name}.weight" in self._model.weights

    def embed(self, scale: float = 1.0, role: str = "hidden") -> Rows:
        """Hidden rows: those of the embedding matrix, times ``scale``."""
        y = self.scratch.array(role, self.inputs["tokens"].shape[0], self._made.width)
        w = self._model.weights[EMBEDDING]
        self._run(KERNELS[w.format].embed, w=w, tokens=self.inputs["tokens"], y=y, scale=scale)
        return y

    def norm(self, name: str, x: Rows) -> Rows:
        """x / sqrt(mean(x^2) + eps) * w, as activations."""
        y = self._activations("normed", *x.shape)
        kernel = rmsnorm_a8 if self._quantised else rmsnorm
        self._run(kernel, x=x, w=self._weight(name), y=y, eps=self._made.eps)
        return y

    def add_norm(self, name: str, x: Rows, residual: Rows, scale: str = "") -> Rows:
        """(residual + x / sqrt(mean(x^2) + eps) * w) * the number named ``scale``, if one is"""
        y = self._hidden(x.shape[0], residual)
        self._run(
            rmsnorm_add,
            x=x,
            w=self._weight(name),
            residual=residual,
            y=y,
            eps=self._made.eps,
            scale=self._weight(scale) if scale else None,
        )
        return y

    def product(self, name: str, x: Rows, residual: Rows = None, act: str = "none") -> Rows:
        """act(W x + bias) + residual. One without a residual holds until the next of its width."""
        w = self._weight(name)
        if residual is None:
            y = self.scratch.array("product", x.shape[0], self._outputs(w))
        else:
            y = self._hidden(x.shape[0], residual)
        kernel, bias = KERNELS[w.format].product, self._bias(name)
        self._run(kernel, w=w, x=x, y=y, bias=bias, residual=residual, ACT=act)
        return y

    def gated(self, gate: str, up: str, x: Rows, act: str) -> Rows:
        """act(gate x) * (up x), as activations."""
        w, v = self._weight(gate), self._weight(up)
        if w.format != v.format:
            return self._gated_apart(gate, up, x, act)
        y = self._activations("gated", x.shape[0], self._outputs(w))
        biases = {"gate_bias": self._bias(gate), "up_bias": self._bias(up)}
        self._run(KERNELS[w.format].gated, gate=w, up=v, x=x, y=y, ACT=act, **biases)
        return y

    def _gated_apart(self, gate: str, up: str, x: Rows, act: str) -> Rows:
        """The same bits for weights of two formats."""
        shape = (x.shape[0], self._outputs(self._weight(gate)))
        parts = [self.scratch.array(role, *shape) for role in ("gate", "up", "both")]
        for name, y in zip((gate, up), parts, strict=False):
            w = self._weight(name)
            self._run(KERNELS[w.format].product, w=w, x=x, y=y, bias=self._bias(name))
        flat = [part.reshape(shape[0] * shape[1]) for part in parts]
        self._run(activate_multiply, gate=flat[0], up=flat[1], out=flat[2], ACT=act)
        return self.activated("gated", parts[2])

    def wanted(self, h: Rows) -> Rows:
        """The hidden rows whose logits are wanted."""
        rows = self.inputs["wanted"]
        y = self._hidden(rows.shape[0], h)
        self._run(take_rows, x=h, rows=rows, y=y)
        return y

    def activated(self, role: str, x: Rows) -> Rows:
        """``x`` as activations, which hold until the next of that role."""
        if not self._quantised:
            return x
        y = self._activations(role, *x.shape)
        self._run(quantise, x=x, y=y)
        return y

    def _attention(
        self, i: int, qkv: Rows, kind: Kind, kept: Kept, heads: Numbers, seen: Numbers
    ) -> Rows:
        """softmax(q k^T * scale) v of layer ``i``, as activations: queries and keys normed where
        the layer has weights for it and turned, keys and values by way of the buffers ``kept``.
        ``heads`` and ``seen`` are further arguments of the two kernels."""
        made, layer, inputs = self._made, self._made.layers[i], self.inputs
        shape = (qkv.shape[0], layer.heads, layer.head)
        q, out = self.scratch.array("queries", *shape), self.scratch.array("attended", *shape)
        cos, sin = self._model.tables[rotation(layer)]
        self._run(
            kind.heads,
            qkv=qkv,
            q_norm=self._model.weights.get(f"blk.{i}.attn_q_norm.weight"),
            k_norm=self._model.weights.get(f"blk.{i}.attn_k_norm.weight"),
            cos=cos,
            sin=sin,
            positions=inputs["positions"],
            rows=inputs["rows"],
            q=q,
            eps=made.eps,
            **heads,
            **kept,
        )
        group = layer.heads // layer.kv_heads
        self._attend(kind.attention, q, out, scale=made.score_scale, GROUP=group, **seen, **kept)
        return self.activated("attended", out.reshape(shape[0], layer.q_width))

    def _attend(self, kernel: Any, q: Rows, out: Rows, **arguments: Any) -> None:
        starts, keys = self.inputs["starts"], self.inputs["keys"]
        self._run(kernel, q=q, starts=starts, keys=keys, out=out, **arguments)

    # ------------------------------------------------------------------------------------ buffers

    def _weight(self, name: str) -> Any:
        return self._model.weights[f"{name}.weight"]

    def _bias(self, name: str) -> Any:
        return self._model.weights.get(f"{name}.bias")

    def _outputs(self, w: Any) -> int:
        """The columns of a product: packed matrices are [outputs, inputs], float32 ones turned."""
        return int(w.shape[0 if w.format else 1])

    def _hidden(self, rows: int, before: Rows = None) -> Rows:
        """Hidden rows other than ``before``, which may not be added to in place."""
        first = self.scratch.array("hidden", rows, self._made.width)
        if before is None or first.root != before.root:
            return first
        return self.scratch.array("hidden too", rows, self._made.width)

    def _activations(self, role: str, rows: int, columns: int) -> Rows:
        if self._quantised:
            return self.scratch.activations(role, rows, columns)
        return self.scratch.array(f"{role} activations", rows, columns)

    def _run(self, kernel: Any, **arguments: Any) -> None:
        self._model.device.run(kernel, target=self._model.target, **arguments)
