"""The kernels that Ferro ships, written in its own language. Imports ferro.dsl only."""
