"""The three numbers of a pattern and where they stand in an array (functions, 3, workers)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
BETA, MU, SIGMA = range(3)
