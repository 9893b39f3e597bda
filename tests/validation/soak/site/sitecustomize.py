"""Python imports this module at its start where its folder is in PYTHONPATH: processes of Ray take their plan so.

The points are loaded by the path of their file, without the packages around it: most processes of Ray need none.
"""

import importlib.util
import os
import sys
from pathlib import Path

if "BIASEVAL_SOAK" in os.environ:
    _spec = importlib.util.spec_from_file_location("soak_points", Path(__file__).parents[1] / "points.py")
    assert _spec is not None
    assert _spec.loader is not None
    _points = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_points)
    _points.install_as_told()
