"""What rows of tables written by hand have in common."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PLACE = {"task": "boolq", "n_demos": 10, "instruction": True, "predict": "likelihood"}
