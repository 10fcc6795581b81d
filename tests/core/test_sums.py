"""Systems that are solved without the linear algebra library."""

from __future__ import annotations

import numpy as np
import pytest

from trine.core.sums import Cholesky


@pytest.mark.parametrize("size", [1, 5, 32, 33, 100])
def test_a_solution_gives_the_right_side_whatever_the_scale_of_the_rows(size: int) -> None:
    rng = np.random.default_rng(size)
    root = rng.random((size, size))
    matrix = root @ root.T + np.diag(10.0 ** rng.uniform(-4, 6, size))
    wanted = rng.random(size)
    found = Cholesky(np.triu(matrix)).solve(matrix @ wanted)
    assert matrix @ found == pytest.approx(matrix @ wanted, rel=1e-9)


def test_a_matrix_that_is_not_definite_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        Cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))
