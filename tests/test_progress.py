"""What is said while a run works."""

import pytest

from biaseval import progress


def test_speed_is_told_of_what_took_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "say", said.append)
    made = progress.MakingProgress(40, 0, "rows scored")
    for second, size in ((100.0, 10), (100.4, 5), (112.0, 15), (122.0, 10)):
        now[0] = second
        made.advance(size, 100 * size)
    assert said == [
        "10 of 40 rows scored",  # the first part: how long it took is not known
        "30 of 40 rows scored, 167 tokens/s, 0:06 left",  # 20 rows in 12 seconds
        "40 of 40 rows scored, 136 tokens/s, 0:00 left",
    ]
    at_once = progress.MakingProgress(2, 0, "readers trained")
    at_once.advance(1, 10**6)
    now[0] += 0.01
    at_once.advance(1, 10**6)
    assert said[-1] == "2 of 2 readers trained"
