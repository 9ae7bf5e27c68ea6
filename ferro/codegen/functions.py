"""Library functions as C functions, once for scalars and once for vectors where both are used."""

from __future__ import annotations

from ferro.codegen.dialect import Dialect, Ex, bare
from ferro.codegen.templates import render
from ferro.dsl.ir import Function, Op, Value


class Functions:
    """Writes the functions that a kernel calls, callees first."""

    def __init__(self, dialect: Dialect, functions: dict[str, Function]) -> None:
        self.dialect = dialect
        self.functions = functions
        self.texts: dict[tuple[str, bool], str] = {}

    def need(self, name: str, wide: bool) -> None:
        wide = wide and self.dialect.kind == "simd"
        if (name, wide) not in self.texts:
            text = self._write(self.functions[name], wide)
            self.texts[name, wide] = text

    def _write(self, function: Function, wide: bool) -> str:
        lines: list[str] = []
        env: dict[Value, Ex] = {}
        params = []
        for i, p in enumerate(function.body.params):
            name = p.name or f"x{i}"
            params.append(f"{self.dialect.ctype(p.dtype, wide)} {name}_")
            env[p] = Ex(f"{name}_", p.dtype, wide)
        for i, op in enumerate(function.body.ops):
            self._op(op, env, lines, i)
        result = function.body.results[0]
        value = env[result]
        return render(
            self.dialect.kind,
            "function",
            ctype=self.dialect.ctype(result.dtype, wide),
            name=self.dialect.function_name(function.name, wide),
            params=params,
            lines=lines,
            result=self.dialect.widen(value) if wide else value.code,
        )

    def _op(self, op: Op, env: dict[Value, Ex], lines: list[str], i: int) -> None:
        result = op.result
        if op.name == "const":
            env[result] = Ex(self.dialect.literal(op.attrs["value"], result.dtype), result.dtype)
            return
        if op.name == "broadcast":
            env[result] = env[op.args[0]]
            return
        args = [env[a] for a in op.args]
        if op.name == "call":
            self.need(op.attrs["function"], any(a.wide for a in args))
        ex = self.dialect.apply(op, args, result)
        name = f"{result.name or 't'}_{i}"
        lines.append(f"const {self.dialect.ctype(ex.dtype, ex.wide)} {name} = {bare(ex.code)};")
        env[result] = Ex(name, ex.dtype, ex.wide)
