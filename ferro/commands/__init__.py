"""The commands, one module each: ``configure(parser)`` declares arguments, ``run(args)`` acts.

Modules here import heavy things inside ``run`` only, so that `ferro --help` stays quick.
"""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "cache": "list, remove and explain compiled programs",
    "doctor": "why a device is missing, with the line that fixes it",
}


class UsageError(Exception):
    """A wrong argument that the parser could not see: exit code 2."""
