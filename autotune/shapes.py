"""What the shipped kernels are tuned for if nobody says: launches of small language models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ferro.catalogue import Entry, shipped
from ferro.measure import Request

FAR = float(2**30 - 1)


@dataclass(frozen=True)
class Shape:
    """Sizes, constants of meaning and contents of one launch."""

    sizes: Mapping[str, int]
    constants: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def request(self, entry: Entry) -> Request:
        return Request(entry.definition, self.sizes, self.constants, self.values)


def attention(queries: int, keys: int) -> Shape:
    """One causal sequence whose last query is at its last key: 16 heads of 64, 8 of them for K."""
    sizes = {"T": queries, "S": keys, "G": 8, "B": 1}
    values = {
        "starts": (0, queries),
        "keys": (0, keys),
        "longest": (queries,),
        "most": (keys,),
        "left": (FAR,),
        "right": (0,),
        "scale": (0.125,),
    }
    return Shape(sizes, {"D": 64, "GROUP": 2}, values)


ROWS = (1, 8, 192, 762)
MATRICES = ((9216, 1024), (1024, 4608))
PRODUCTS = [Shape({"M": m, "N": n, "K": k}) for m in ROWS for n, k in MATRICES]
NORMS = [Shape({"M": m, "K": 1024}) for m in (1, 192)]
FLAT = [Shape({"N": n}) for n in (4608, 192 * 4608)]
ATTENTION = [attention(1, 1921), attention(192, 192)]
ROTARY = {"heads": (16,)}

TYPICAL: dict[str, Sequence[Shape]] = {
    "vectors.add": FLAT,
    "vectors.scale_add": FLAT,
    "vectors.activate_multiply": FLAT,
    "norms.rmsnorm": NORMS,
    "norms.rmsnorm_a8": NORMS,
    "norms.layernorm": NORMS,
    "quantise.quantise": NORMS,
    "softmax.softmax": [Shape({"M": m, "N": 1921}) for m in (1, 192)],
    "rotary.rotary": [
        Shape({"T": t, "H": 16, "D": 64, "P": 2048, "C": 32}, values=ROTARY) for t in (1, 192)
    ],
    "embedding.embed_q8": [Shape({"V": 65536, "K": 1024, "T": t}) for t in (1, 192)],
    "attention.attention": ATTENTION,
    "attention.attention_f16": ATTENTION,
    "matmul.matmul": [Shape({"M": 192, "N": 1024, "K": 1024})],
    "matmul.gated_q8": [Shape({"M": m, "N": 4608, "K": 1024}) for m in ROWS],
    "matmul.matmul_q8": PRODUCTS,
}


def typical(entry: Entry) -> Sequence[Shape]:
    """The shapes of one kernel; none for a stranger's."""
    return TYPICAL.get(f"{entry.module}.{entry.name}", ())


def requests() -> Iterator[Request]:
    """Every shipped kernel at its typical shapes, the quick ones first."""
    for name in TYPICAL:
        for entry in shipped():
            if f"{entry.module}.{entry.name}" == name:
                yield from (shape.request(entry) for shape in typical(entry))
