"""What a child process needs to be this program again: Ferro as the parent has imported it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Our variables, with our own search path in place of the user's.

    Entries of PYTHONPATH may be relative to a folder that the process has left since, and a folder
    that the child starts in may hold another ``ferro``; neither counts in the child.
    """
    paths = [os.path.abspath(path) for path in sys.path]
    paths += [] if str(ROOT) in paths else [str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
