"""What a device gave is kept from one call of `benchmarks/compute_opencl.py` to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import compute_opencl
from benchmarks.compute_opencl_state import State


def test_calls_add_up_and_devices_are_apart(tmp_path: Path) -> None:
    kept = tmp_path / "state.jsonl"
    State(kept, "one").add_case(("NEScale", 3), [])
    State(kept, "two").add_case(("NEScale", 4), [])
    state = State(kept, "one")
    state.add_case(("NEScale", 5), ["library: off by 2"])
    state.add_tuned("Dilate", 2e-5, 1e-5, "(8, 8, 1)")
    with kept.open("a") as file:
        file.write('{"device": "one", "name": "NESc')  # the process was killed here
    again = State(kept, "one")
    assert again.cases == {("NEScale", 3): [], ("NEScale", 5): ["library: off by 2"]}
    assert again.tuned == {"Dilate": (2e-5, 1e-5, "(8, 8, 1)")}


def test_a_line_that_was_cut_takes_no_other_along(tmp_path: Path) -> None:
    kept = tmp_path / "state.jsonl"
    kept.write_text('{"device": "one", "name": "NESc')
    State(kept, "one").add_case(("NEScale", 3), [])
    State(kept, "one").add_case(("NEScale", 4), [])
    assert set(State(kept, "one").cases) == {("NEScale", 3), ("NEScale", 4)}


@pytest.mark.parametrize(("wrong", "is_good"), [([], True), (["CPU: other numbers"], False)])
def test_the_summary_counts_what_agrees(wrong: list[str], is_good: bool, capsys: pytest.CaptureFixture[str]) -> None:
    state = State(None, "one")
    state.add_case(("NEScale", 0), [])
    state.add_case(("NEScale", 7), wrong)
    every = [("NEScale", number) for number in range(50)]
    assert compute_opencl.summary(["NEScale"], every, state) is is_good
    row, total = capsys.readouterr().out.splitlines()[1:]
    assert row.split() == ["CLScale", "2", *(("2", "0") if is_good else ("1", "1:", "cases", "7"))]
    assert total == f"2 of 50 cases run, {1 + is_good} agree, {1 - is_good} differ; 1 of 1 lists"


def test_cases_of_the_file_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(tmp_path / "state.jsonl", "one")
    state.add_case(("NEScale", 0), [])
    asked = []

    def checked(pairs: object, jobs: int, seconds: float) -> object:
        asked.extend(pairs)  # type: ignore[call-overload]  # an iterator of pairs
        return ((pair, []) for pair in asked)

    monkeypatch.setattr(compute_opencl, "checked", checked)
    assert compute_opencl.check_all(["NEScale"], range(3), 1, 1, state)
    assert asked == [("NEScale", 1), ("NEScale", 2)]
    assert len(State(tmp_path / "state.jsonl", "one").cases) == 3
