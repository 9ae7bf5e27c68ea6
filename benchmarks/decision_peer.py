"""llama.cpp's side of ``benchmarks.decisions``: a process that another Python runs.

    python decision_peer.py FOLDER MODEL THREADS

FOLDER holds ``oracle.py``, which loads llama.cpp's library. Reads a line of JSON for each thing to
do, ``{"sequences": [[ids]], "wanted": [[rows]], "group": n, "flash": bool}``, and answers
``{"seconds": s, "others": share, "rows": [[choice, score, noul]]}``: all sequences, ``group`` of
them in a batch, and the share of the processors that others took. Nothing is computed between
lines.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from ferro.neighbours import Watch

AUTO, PLAIN = -1, 0  # llama.cpp's llama_flash_attn_type


def contexts(base: type[Any], ffi: Any) -> type[Any]:
    """``base``, the oracle of one sequence, for several in a batch."""

    class Packed(base):
        def prepare(self, group: int, longest: int, flash: bool) -> None:
            self._release()
            params = self.lib.llama_context_default_params()
            rows = group * longest
            params.n_ctx = params.n_batch = params.n_ubatch = rows
            params.n_outputs_max = params.n_outputs_max_per_seq = rows
            params.n_seq_max = group
            params.kv_unified = True
            params.n_threads = params.n_threads_batch = self.threads
            params.embeddings, params.pooling_type = True, 0
            params.flash_attn_type = AUTO if flash else PLAIN
            self.context = self.lib.llama_init_from_model(self.model, params)
            if self.context == ffi.NULL:
                raise RuntimeError("llama.cpp makes no context")
            # a language model in the place of one of decisions is told what the latter says itself
            self.lib.llama_set_embeddings(self.context, True)
            self.lib.llama_set_causal_attn(self.context, False)

        def batch(self, sequences: list[list[int]], wanted: list[list[int]]) -> list[list[float]]:
            total = sum(map(len, sequences))
            batch = self.lib.llama_batch_init(total, 0, 1)
            batch.n_tokens, i, kept = total, 0, []
            for number, (ids, rows) in enumerate(zip(sequences, wanted)):  # noqa: B905
                for position, token in enumerate(ids):
                    batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
                    batch.seq_id[i][0], batch.logits[i] = number, position in rows
                    kept += [i] if position in rows else []
                    i += 1
            memory = self.lib.llama_get_memory(self.context)
            if memory != ffi.NULL:  # of a language model
                self.lib.llama_memory_clear(memory, False)
            code = self.lib.llama_decode(self.context, batch)
            self.lib.llama_synchronize(self.context)
            self.lib.llama_batch_free(batch)
            if code:
                raise RuntimeError(f"llama_decode gives {code}")
            read = self.lib.llama_get_embeddings_ith
            return [self._read(read(self.context, i), 3).tolist() for i in kept]

    return Packed


def main() -> None:
    folder, model, threads = sys.argv[1:]
    sys.path.insert(0, folder)
    import oracle  # type: ignore[import-not-found]

    peer = contexts(oracle.Oracle, oracle.ffi)(model, threads=int(threads), exact=False)
    last = None
    for line in sys.stdin:
        asked = json.loads(line)
        sequences, wanted, group = asked["sequences"], asked["wanted"], asked["group"]
        kind = (group, max(map(len, sequences)), asked["flash"])
        if kind != last:
            peer.prepare(*kind)
            peer.batch(sequences[:group], wanted[:group])  # the first batch allocates
            last = kind
        found, watch, began = [], Watch(), time.perf_counter()
        for i in range(0, len(sequences), group):
            found += peer.batch(sequences[i : i + group], wanted[i : i + group])
        seconds, others = time.perf_counter() - began, watch.others()
        print(json.dumps({"seconds": seconds, "others": others, "rows": found}), flush=True)


if __name__ == "__main__":
    main()
