"""What the code generator refuses."""

from __future__ import annotations


class ConfigError(ValueError):
    """A config that a kernel or a target cannot take."""

    exit_code = 2  # of a command: bad input
