"""The paper's experiments: cells as data, a store that survives, engines that run them."""

from .cells import NUMERICS, Cell, Group
from .plans import EXPERIMENTS, Experiment, Plan, Settings, plan
from .runner import Ways, run
from .store import Store

__all__ = [
    "EXPERIMENTS",
    "NUMERICS",
    "Cell",
    "Experiment",
    "Group",
    "Plan",
    "Settings",
    "Store",
    "Ways",
    "plan",
    "run",
]
