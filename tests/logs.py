"""Logs for the tests: arbitrary episodes, and what it means for two of them to be the same."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adaptive_td import Episodes

quick = settings(max_examples=25, deadline=None)
FLOATS = st.floats(-1e6, 1e6, width=32)


@st.composite
def any_episodes(draw: st.DrawFn, *, max_dims: int = 2) -> Episodes:
    """Episodes of any shape, with or without durations and keys."""
    lengths = np.array(draw(st.lists(st.integers(1, 5), min_size=1, max_size=5)))
    steps, count = int(lengths.sum()), len(lengths)
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=max_dims)))
    dtype = draw(st.sampled_from([np.float32, np.int64, np.uint8, np.bool_]))
    elements = FLOATS if dtype is np.float32 else None
    keys = {
        name: draw(hnp.arrays(key, steps, elements=letters if key == "U3" else None))
        for name, key in draw(
            st.dictionaries(names, st.sampled_from(["U3", "i8", "f4", "M8[us]"]), max_size=2)
        ).items()
    }
    return Episodes(
        states=draw(hnp.arrays(dtype, (steps + count, *shape), elements=elements)),
        rewards=draw(hnp.arrays(np.float32, steps, elements=FLOATS)),
        lengths=lengths,
        ended=draw(hnp.arrays(np.bool_, count)),
        durations=draw(st.none() | hnp.arrays(np.float32, steps, elements=st.floats(0, 1e3, width=32))),
        keys=keys,
    )


letters = st.text("abcé0 ", min_size=1, max_size=3)
names = st.text("abc_.é", min_size=1, max_size=4)


def assert_same(left: Episodes, right: Episodes) -> None:
    """Every field, to the last bit and with its type."""
    for name in ("states", "rewards", "lengths", "ended", "durations"):
        a, b = getattr(left, name), getattr(right, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype == b.dtype, name
            assert np.array_equal(a, b), name
    for ours, theirs in ((left.keys, right.keys), (left.extras, right.extras)):
        assert ours.keys() == theirs.keys()
        for name, column in ours.items():
            assert column.dtype.kind == theirs[name].dtype.kind
            equal_nan = column.dtype.kind in "fM"
            assert np.array_equal(column, theirs[name], equal_nan=equal_nan), name
    assert (left.stack, left.info) == (right.stack, right.info)


def some_episodes() -> Episodes:
    """Three small episodes, one of them truncated, with keys and durations."""
    rng = np.random.default_rng(0)
    lengths = [4, 2, 3]
    return Episodes.from_lists(
        [rng.normal(size=(n + 1, 2)) for n in lengths],
        [rng.normal(size=n) for n in lengths],
        [True, False, True],
        durations=[rng.uniform(0.5, 2, size=n) for n in lengths],
        keys={"id": [[c] * n for c, n in zip("abc", lengths, strict=True)], "t": [range(n) for n in lengths]},
    )
