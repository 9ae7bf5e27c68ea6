"""Ferro: a tile-kernel compiler and inference engine for OpenCL."""

__version__ = "0.1.0"
