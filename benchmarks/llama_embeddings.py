"""llama.cpp's side of ``benchmarks.embeddings``: a process of its own, in the oracle's Python.

    python llama_embeddings.py ORACLE MODEL THREADS [FOLDER]

ORACLE is the oracle's ``oracle.py``, FOLDER one with another build of ``libllama.so``. For each
line of JSON (token ids of some sequences) all are computed in one batch, with flash attention and
without, and a line tells ``{"seconds": [...], "vectors": [...]}``: of both, and the pooled vectors.
Threads sleep while nothing is asked.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any


def loaded(path: str, folder: str | None) -> Any:
    """The oracle's module."""
    sys.path.insert(0, str(Path(path).parent))  # what lies beside it
    spec = importlib.util.spec_from_file_location("oracle", path)
    assert spec is not None and spec.loader is not None
    oracle: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    if folder is not None:
        library = oracle.ffi.dlopen(str(Path(folder) / "libllama.so"))
        library.llama_log_set(oracle.log, oracle.ffi.NULL)
        library.llama_backend_init()
        oracle.library = lambda: library
    return oracle


class Contexts:
    """Contexts of one model for batches of a shape, with flash attention and without."""

    def __init__(self, oracle: Any, model: Any) -> None:
        self._oracle, self._model = oracle, model
        self._made: dict[tuple[int, int], list[Any]] = {}

    def of(self, rows: int, sequences: int) -> list[Any]:
        if (rows, sequences) not in self._made:
            self._made[rows, sequences] = [self._make(rows, sequences, flash) for flash in (1, 0)]
        return self._made[rows, sequences]

    def _make(self, rows: int, sequences: int, flash: int) -> Any:
        lib, ffi = self._model.lib, self._oracle.ffi
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = rows
        params.n_outputs_max = rows
        params.n_seq_max = sequences
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = self._model.threads
        params.embeddings = True
        params.flash_attn_type = flash
        made = lib.llama_init_from_model(self._model.model, params)
        if made == ffi.NULL:
            raise SystemExit("llama.cpp cannot make a context: " + "".join(self._oracle.messages))
        return made


def run(oracle: Any, model: Any, context: Any, ids: list[list[int]]) -> float:
    """Seconds of one batch."""
    lib = model.lib
    rows = sum(map(len, ids))
    batch = lib.llama_batch_init(rows, 0, 1)
    batch.n_tokens = rows
    places = [(s, p, token) for s, each in enumerate(ids) for p, token in enumerate(each)]
    for i, (sequence, position, token) in enumerate(places):
        batch.token[i], batch.pos[i], batch.logits[i] = token, position, 1
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
    started = time.perf_counter()
    code = lib.llama_decode(context, batch)
    lib.llama_synchronize(context)
    seconds = time.perf_counter() - started
    lib.llama_batch_free(batch)
    if code:
        raise SystemExit(f"llama_decode gave {code}: {''.join(oracle.messages[-5:])}")
    return seconds


def vectors(oracle: Any, model: Any, context: Any, count: int) -> list[list[float]]:
    """The pooled vectors of a batch."""
    lib, ffi = model.lib, oracle.ffi
    width = lib.llama_model_n_embd_out(model.model)
    pointers = [lib.llama_get_embeddings_seq(context, i) for i in range(count)]
    return [list(ffi.unpack(pointer, width)) for pointer in pointers]


def main() -> None:
    path, file, threads, *folder = sys.argv[1:]
    oracle = loaded(path, folder[0] if folder else None)
    model = oracle.Oracle(file, int(threads), exact=False)
    contexts = Contexts(oracle, model)
    for line in sys.stdin:
        ids = json.loads(line)
        made = contexts.of(sum(map(len, ids)), len(ids))
        seconds = [run(oracle, model, context, ids) for context in made]
        found = vectors(oracle, model, made[0], len(ids))
        print(json.dumps({"seconds": seconds, "vectors": found}), flush=True)


if __name__ == "__main__":
    main()
