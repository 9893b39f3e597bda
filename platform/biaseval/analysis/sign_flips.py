"""The sign patterns for every test of paired differences (``sign_flip_tests``)."""

import numpy as np
import pyarrow as pa

from biaseval.tables import SIGN_FLIPS

N_PATTERNS = 4096
"""The number of patterns: a p-value of 5 % has a Monte Carlo error of 0.3 points."""

N_EXACT = 12
"""The most units whose patterns all fit into `N_PATTERNS`, so that tests are exact."""

MAX_UNITS = 1024
"""The most units with separate signs; more units are flipped in groups."""


def sign_flips(n_units: int, seed: int) -> pa.Table:
    """Return the patterns of signs, as ``sign_flips``.

    Pattern 0 flips nothing. The first 2^n patterns are all patterns of the first n units, up to `N_EXACT`. The signs of
    further units are drawn. ``n_units`` is the largest number of units in a test of the run.
    """
    width = max(1, min(n_units, MAX_UNITS))
    drawn = np.random.default_rng(seed).integers(0, 2, size=(N_PATTERNS, width), dtype=np.int8)
    n_exact = min(width, N_EXACT)
    drawn[:, :n_exact] = (np.arange(N_PATTERNS)[:, None] >> np.arange(n_exact)) & 1
    drawn[0] = 0
    ends = np.arange(N_PATTERNS + 1, dtype=np.int32) * width
    signs = pa.ListArray.from_arrays(pa.array(ends), pa.array((1 - 2 * drawn).ravel()))
    return pa.table({"draw": pa.array(range(N_PATTERNS), pa.int32()), "signs": signs}, schema=SIGN_FLIPS.schema)
