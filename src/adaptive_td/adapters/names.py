"""The names under which people keep the fields of a log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Field = Literal[
    "episode",
    "step",
    "time",
    "observation",
    "next_observation",
    "reward",
    "terminated",
    "truncated",
    "done",
    "action",
]

NAMES: dict[Field, str] = {
    "episode": "episode episode_id episode_index eps_id ep_id traj_id trajectory_id trajectory session_id",
    "step": "step t frame_index timestep time_step step_index step_id",
    "time": "time timestamp ts datetime",
    "observation": "observation observations obs state states",
    "next_observation": "next_observation next_observations next_obs new_obs next_state next_states",
    "reward": "reward rewards r next.reward",
    "terminated": "terminated terminateds terminal terminals terminations is_terminal",
    "truncated": "truncated truncateds truncations timeout timeouts",
    "done": "done dones is_done is_last next.done",
    "action": "action actions",
}


def find_name(field: Field, present: Iterable[str]) -> str | None:
    """The name that `field` goes by among those present, whatever its case; None where it has none."""
    by_lower = {name.lower(): name for name in present}
    return next((by_lower[name] for name in NAMES[field].split() if name in by_lower), None)
