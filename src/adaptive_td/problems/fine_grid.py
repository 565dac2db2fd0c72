"""Values of a labyrinth from a linear system on a fine grid: a second method, with no random number in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy import sparse
from scipy.sparse.linalg import bicgstab

from adaptive_td.errors import UsageError

from .cells import cell_centres
from .labyrinth import Labyrinth

Points = Float64[np.ndarray, "points 2"]


def solve(
    labyrinth: Labyrinth, *, cells: tuple[int, int] = (3, 5), angles: int = 240
) -> Float64[np.ndarray, " states"]:
    """The values of the states of `labyrinth.grid()`.

    Each state of the grid is the centre of a cell; `cells` tells how many nodes, an odd number, line each
    side of a cell in two solutions. Interpolating between nodes at distance h spreads the walk by a further
    h²/6 a step, so a solution errs by about c h², and two of them tell what h = 0 would give:

        v = v_2 + (v_2 - v_1) / ((h_1 / h_2)² - 1).
    """
    coarse, fine = cells
    if not (coarse < fine and coarse % 2 and fine % 2):
        raise UsageError(f"cells: must be two odd numbers, the smaller first, got {cells}")
    first, second = (_solve_once(labyrinth, n, angles) for n in cells)
    return np.asarray(second + (second - first) / ((fine / coarse) ** 2 - 1))


class _Grid(NamedTuple):
    """Nodes at the centres of equal cells, numbered along x first."""

    columns: int
    rows: int
    spacing: Float64[np.ndarray, "2"]


def _solve_once(labyrinth: Labyrinth, per_cell: int, angles: int) -> Float64[np.ndarray, " states"]:
    """One solution of u(s) = E[r(s') + γ' u(s')], for the value of what follows; then v = r + γ' u.

    u is smooth where v jumps, at the edges of discs, so u is what is interpolated: with the matrix A of the
    mean over angles of the interpolation weights of s', u = R + γ' A u, R the mean reward of s'.
    """
    rows, columns = labyrinth.grid_shape
    size = np.array(labyrinth.high)
    shape = np.array([columns * per_cell, rows * per_cell])
    grid = _Grid(int(shape[0]), int(shape[1]), size / shape)
    nodes = cell_centres(labyrinth.low, labyrinth.high, (grid.rows, grid.columns))
    rewards = np.zeros(len(nodes))
    matrix = sparse.csr_matrix((len(nodes), len(nodes)))
    turns = 2 * np.pi * (np.arange(angles) + 0.5) / angles
    for some in np.array_split(turns, max(1, angles * len(nodes) // 500_000)):
        pieces = []
        for angle in some:
            reached = nodes + labyrinth.step * np.array([np.cos(angle), np.sin(angle)])
            outside = ((reached < 0) | (reached > size)).any(axis=1)
            stays = outside | _any_crossing(labyrinth, nodes, reached)
            reached = np.where(stays[:, None], nodes, reached)
            rewards += _reward(labyrinth, reached) / angles
            pieces.append(_weights(labyrinth, grid, reached))
        node, weight = (np.concatenate(part, axis=1) for part in zip(*pieces, strict=True))
        owner = np.broadcast_to(np.arange(len(nodes))[:, None], node.shape)
        matrix = matrix + sparse.csr_matrix(
            (weight.ravel() / angles, (owner.ravel(), node.ravel())), shape=matrix.shape
        )
    system = sparse.identity(len(nodes), format="csr") - labyrinth.effective_discount * matrix
    follows, failed = bicgstab(system, rewards, rtol=1e-9, maxiter=5000)
    if failed:
        raise UsageError(f"the fine-grid solve of {labyrinth.name} did not converge ({failed})")
    values = _reward(labyrinth, nodes) + labyrinth.effective_discount * follows
    middle = np.arange(per_cell // 2, shape.max(), per_cell)
    picked: Float64[np.ndarray, "rows columns"] = values.reshape(grid.rows, grid.columns)[
        np.ix_(middle[:rows], middle[:columns])
    ]
    return picked.ravel()


def _weights(
    labyrinth: Labyrinth, grid: _Grid, points: Points
) -> tuple[Int[np.ndarray, "points 4"], Float64[np.ndarray, "points 4"]]:
    """Four nodes around each point and their weights in bilinear interpolation.

    Next to the border the weights extrapolate. A node behind a wall has no say; the others share its weight,
    and where none is left the nearest node speaks alone (which only happens in corners narrower than a cell).
    """
    place = points / grid.spacing - 0.5
    corner = np.clip(np.floor(place).astype(np.int64), 0, [grid.columns - 2, grid.rows - 2])
    right, up = (place - corner).T
    node = (corner[:, 1] * grid.columns + corner[:, 0])[:, None] + [0, 1, grid.columns, grid.columns + 1]
    weight = np.stack([(1 - right) * (1 - up), right * (1 - up), (1 - right) * up, right * up], axis=1)
    near = np.flatnonzero(labyrinth.wall_distance(points) <= 2 * np.hypot(*grid.spacing))
    if len(near):
        at = (np.stack([node[near] % grid.columns, node[near] // grid.columns], axis=-1) + 0.5) * grid.spacing
        hidden = np.stack([_any_crossing(labyrinth, points[near], at[:, j]) for j in range(4)], axis=1)
        shared = np.where(hidden, 0.0, np.clip(weight[near], 0.01, None))
        shared = np.where(hidden.all(axis=1, keepdims=True), np.eye(4)[weight[near].argmax(axis=1)], shared)
        renewed = shared / shared.sum(axis=1, keepdims=True)
        weight[near] = np.where(hidden.any(axis=1, keepdims=True), renewed, weight[near])
    return node, weight


def _any_crossing(labyrinth: Labyrinth, start: Points, end: Points) -> Bool[np.ndarray, " points"]:
    """Whether the segment from start to end meets a wall: the ends of each lie on both sides of the other."""
    crossed = np.zeros(len(start), bool)
    for x1, y1, x2, y2 in labyrinth.walls:
        one, two = np.array([x1, y1], float), np.array([x2, y2], float)
        sides = _side(one, two, start) * _side(one, two, end) <= 0
        crossed |= sides & (_side(start, end, one) * _side(start, end, two) <= 0)
    return crossed


def _side(
    start: Float64[np.ndarray, "*#points 2"],
    end: Float64[np.ndarray, "*#points 2"],
    point: Float64[np.ndarray, "*#points 2"],
) -> Float64[np.ndarray, " points"]:
    """Twice the signed area of the triangle: positive where the point lies left of start → end."""
    along, towards = end - start, point - start
    area: Float64[np.ndarray, " points"] = along[..., 0] * towards[..., 1] - along[..., 1] * towards[..., 0]
    return area


def _reward(labyrinth: Labyrinth, points: Points) -> Float64[np.ndarray, " points"]:
    inside = np.zeros(len(points), bool)
    for x, y, radius in labyrinth.discs:
        inside |= np.hypot(points[:, 0] - x, points[:, 1] - y) <= radius
    return np.where(inside, float(labyrinth.reward), 0.0)
