"""Kernels that Ferro does not ship: written against the language page alone."""
