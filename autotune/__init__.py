"""The tuner: which schedules of a kernel are worth trying, trying them safely, keeping the times.

``tune`` is the way in. Launches find winners by themselves, through ``ferro.runtime.configs``.
"""

from autotune.problem import Problem
from autotune.prune import prune
from autotune.tuner import Tuning, tune

__all__ = ["Problem", "Tuning", "prune", "tune"]
