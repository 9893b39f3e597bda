"""What is said while a run works."""

from __future__ import annotations

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


def test_the_first_part_says_how_long_the_others_take(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    monkeypatch.setattr(progress, "say", said.append)
    made = progress.MakingProgress(80, 0, "rows scored", n_planned_tokens=408_000)
    made.advance(10, 51_000, 100.0)
    # 357,000 tokens at 510 a second are 700 seconds.
    assert said[0] == (
        "about 7 to 16 min to go on this machine: the first part took 100.0 s, at 510 tokens/s, and 357,000 tokens are "
        "left"
    )
    made.advance(10, 51_000, 100.0)
    assert len([line for line in said if line.startswith("about")]) == 1
    of_four = progress.MakingProgress(80, 0, "rows scored", n_planned_tokens=408_000)
    of_four.advance(10, 51_000, 100.0, n_actors=4)
    [line] = [line for line in said[2:] if line.startswith("about")]
    assert line.startswith("about 112 to 243 s to go on this machine: ")
    assert "at 510 tokens/s by each of 4 actors" in line
    soon = progress.MakingProgress(80, 0, "rows scored", n_planned_tokens=408_000)
    soon.advance(10, 51_000, 1.0)
    assert said[-1] == "10 of 80 rows scored"  # seven seconds need no words
