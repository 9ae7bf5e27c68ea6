"""Decisions: typed questions about a state, answered in one pass, as llama.cpp's ``/v1/systemone``
has them. Requests become prompts, scores become answers; nothing here needs a device.

The rules are those of the prompt of ``lfm2-d1-omni``; docs/decisions.md states them.
"""
