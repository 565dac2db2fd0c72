"""Episodes in Minari data sets, HDF5 or Arrow.

Minari keeps N + 1 observations for N rewards, and termination apart from truncation. An episode that
neither terminated nor truncated at its end is truncated: its log stops there. Dict and Tuple observations
become vectors in the order of `spaces.feature_names`; integers stay integers.

A data set is only data here: it may name an environment, but nothing that it names is built or imported,
and no file outside it is opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_td.errors import DataError, UsageError, unknown_name

from .log import Log, refuse_bomb
from .spaces import as_array

_BROKEN = (
    AssertionError,
    AttributeError,
    IndexError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def read(source: str | Path, *, max_bytes: int = 2**30) -> Log:
    """The rows of a data set: a Minari id (text) that is installed here, or the path of its folder."""
    try:
        import minari
        from minari.dataset.minari_storage import MinariStorage
    except ImportError as error:
        raise UsageError(
            f'Minari data needs the extra: pip install "adaptive-td[minari]" ({error})'
        ) from None
    folder = _data_folder(source if isinstance(source, Path) else _installed(source))
    with _naming(folder):
        metadata = json.loads((folder / "metadata.json").read_text())
        version, form = metadata["minari_version"], metadata["data_format"]
        described = isinstance(metadata.get("observation_space"), str) and isinstance(
            metadata.get("action_space"), str
        )
    if not described:
        raise DataError(
            "observation_space: missing in metadata.json; Minari would build the environment named there"
        )
    if version not in minari.supported_dataset_versions:
        raise DataError(f"minari_version: {version} is not one that the installed Minari reads")
    if form == "hdf5":
        _judge_hdf5(folder / "main_data.hdf5", max_bytes)
    with _naming(folder):
        storage = MinariStorage.read(folder)
        count = range(storage.total_episodes)
        described_steps = [int(entry["total_steps"]) for entry in storage.get_episode_metadata(count)]
        return _log(storage.observation_space, storage.get_episodes(count), described_steps)


def _log(space: Any, episodes: Iterable[dict[str, Any]], described_steps: list[int]) -> Log:
    states, rewards, ended = [], [], []
    for i, (episode, steps) in enumerate(zip(episodes, described_steps, strict=True)):
        state = as_array(space, episode["observations"])
        reward, stops = np.asarray(episode["rewards"]), np.asarray(episode["terminations"], bool)
        if not len(reward) == len(stops) == steps or len(state) != steps + 1:
            raise DataError(
                f"observations: episode {i} has {len(state)} for {len(reward)} rewards, {len(stops)} flags "
                f"and {steps} steps by its metadata; expected one more than each of these"
            )
        if stops[:-1].any():
            raise DataError(
                f"terminations: episode {i} goes on after it terminated in step {np.argmax(stops)}"
            )
        states.append(state)
        rewards.append(reward)
        ended.append(bool(stops[-1:].any()))
    if not states:
        raise DataError("episodes: the data set has none")
    return Log(
        states=np.concatenate(states),
        rewards=np.concatenate(rewards),
        lengths=np.array([len(part) for part in rewards]),
        ended=np.array(ended),
    )


def _data_folder(path: Path) -> Path:
    """The folder that holds the data, given that or the data set's own."""
    for folder in (path, path / "data"):
        if (folder / "metadata.json").is_file():
            return folder
    raise DataError(f"{path}: not a Minari data set: it has no metadata.json")


def _installed(dataset_id: str) -> Path:
    import minari
    from minari.storage.datasets_root_dir import get_dataset_path

    known = minari.list_local_datasets()
    if dataset_id not in known:
        raise unknown_name("installed Minari data set", dataset_id, known)
    return Path(get_dataset_path(dataset_id))


def _judge_hdf5(path: Path, max_bytes: int) -> None:
    """Refuse links and storage that lead out of the file, and sizes that it cannot hold."""
    import h5py

    size, declared = path.stat().st_size if path.exists() else 0, 0
    with _naming(path), h5py.File(path, "r") as file:
        groups, seen = [file], set()
        while groups:
            group = groups.pop()
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise DataError(f"{group.name}/{name}: a link to another place or file")
                item = group[name]
                if isinstance(item, h5py.Group):
                    address = h5py.h5o.get_info(item.id).addr
                    if address in seen:
                        raise DataError(f"{item.name}: a group that appears twice")
                    seen.add(address)
                    groups.append(item)
                elif isinstance(item, h5py.Dataset):
                    if item.external or item.is_virtual:
                        raise DataError(f"{item.name}: its values are kept in another file")
                    declared += item.size * item.dtype.itemsize
    refuse_bomb(path.name, packed=size, unpacked=declared, max_bytes=max_bytes)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Give the many errors of a broken data set one form."""
    try:
        yield
    except _BROKEN as error:
        raise DataError(f"{path.name}: not readable as a Minari data set: {error!r}") from None
