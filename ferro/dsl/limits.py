"""How large a kernel may be: what the front end, the interpreter and code generators can serve."""

from __future__ import annotations

# A tile is kept in registers or private memory: of larger ones the stack of a CPU overflows.
TILE = 1 << 16
RANK = 8

# Levels of brackets, operators and blocks in the text of one function, and of whatever is being
# read at one time, inlined functions included. Every stage recurses over them.
SYNTAX_DEPTH = 100
DEPTH = 160

# Run-time loops, branches and walks inside of each other.
NESTING = 16

# Names, numbers and operators of an expression over sizes, such as a number of programs.
EXTENT = 64

# Statements read, counted once for each time that they are unrolled or inlined.
STATEMENTS = 1 << 16
