"""The interior point of published results: of several optima the one that their solver ends at is found again.

Published shares come from a conic solver (ECOS) without crossover, so they lie inside the set of optima. ``walk`` goes
the same way: the homogeneous self-dual embedding from the least-squares start, by Mehrotra's predictor-corrector.
"""

from trine.parity.hsd_ipm.cone_program import ConeProgram
from trine.parity.hsd_ipm.walk import walk

__all__ = ["ConeProgram", "walk"]
