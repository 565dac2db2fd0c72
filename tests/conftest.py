"""All tests run with shapes and types checked at run time."""

from collections.abc import Iterator

from jaxtyping import install_import_hook

install_import_hook("adaptive_td", "typechecker.check")

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture
def float64() -> Iterator[None]:
    """Arithmetic in double precision for one test."""
    with jax.enable_x64(True):
        yield
