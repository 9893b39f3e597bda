"""Label bias (P1, Reif & Schwartz 2024): tasks, splits, prompts and calibration inputs. Pure: no Ray, no torch."""
