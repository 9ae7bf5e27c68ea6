"""The operations of causal passes: attention by way of a cache, convolutions with a state."""

from __future__ import annotations

from ferro.models.cache import Cache
from ferro.models.loaded import Loaded
from ferro.models.operations import EVERY_KEY, Operations, Rows
from ferro.models.passes import Shape, upload
from ferro.models.scratch import Scratch
from kernels_src.shortconv import shortconv, shortconv_a8


class Layers(Operations):
    """Operations on the rows of one pass of a language model."""

    def __init__(self, model: Loaded, cache: Cache, shape: Shape) -> None:
        super().__init__(model, upload(model.device, shape), Scratch(model.device))
        self._cache, self._shape = cache, shape

    def attention(self, i: int, qkv: Rows, pairs: str = "halves") -> Rows:
        """softmax(q k^T * scale) v of layer ``i``, as activations, keys and values by way of the
        cache. A query sees itself and what is before it, or a window of that."""
        cache, window = self._cache, self._made.layers[i].window
        seen = {
            "longest": self._shape.longest,
            "most": cache.context,
            "left": window - 1 if window else EVERY_KEY,
            "right": 0,
        }
        return self._attention(i, qkv, cache.kind, cache.layers[i], {"PAIRS": pairs}, seen)

    def short_convolution(self, i: int, bcx: Rows) -> Rows:
        """C * conv(B * X) of layer ``i``, as activations, with the state of each slot."""
        y = self._activations("convolved", bcx.shape[0], self._made.width)
        self._run(
            shortconv_a8 if self._quantised else shortconv,
            bcx=bcx,
            w=self._weight(f"blk.{i}.shortconv.conv"),
            starts=self.inputs["starts"],
            slots=self.inputs["slots"],
            positions=self.inputs["positions"],
            y=y,
            **self._cache.layers[i],
        )
        return y

    def logits(self, x: Rows) -> Rows:
        """The product with the LM head, or with the embedding in its place."""
        return self.product("output" if "output.weight" in self._model.weights else "token_embd", x)
