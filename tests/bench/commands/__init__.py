"""The commands behind ``jobs/benchmark*.py``, ``jobs/first_gpu_hour.py`` and ``jobs/validate.py``."""
