"""Passes over run programs as texts: what is prepared, what leaves a program, and where values lie."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from armillary.program.nodes import Program
from armillary.program.placement import arena_bytes, place
from armillary.program.prepare import prepare
from armillary.program.text import parse_program, print_program
from armillary.program.to_graph import graph_of
from armillary.program.verify import verify

_PREPARED = (
    """program () {
  %x: float32[4] input slot 0
  %w: float32[4] constant slot 1
  %a: float32[4] transient slot 2
  %b: float32[2, 2] transient slot 2
  %c: float32[4] transient slot 3
  %d: float32[4] transient slot 4
  call pack(%w) -> %a
  view %a -> %b
  call random(%b) -> %c
  call add(%x, %c) -> %d
  return %d
}
""",
    {"a": "prepared", "b": "prepared", "c": "transient", "d": "output"},  # random is not pure
)
_SIZED = (
    """program (n in 1..64, k in 1..64) {
  %x: float32[n] input slot 0
  %w: float32[4] constant slot 1
  %p: float32[n] transient slot 2
  %q: float32[n, 1] transient slot 2
  %r: float32[n] transient slot 3
  %s: float32[n] transient slot 4
  %c: int64[] transient slot 5
  %t: float32[k] transient slot 6
  %y: float32[n] transient slot 7
  call positions(%w) -> %p
  view %p -> %q
  call positions(%q) -> %r
  call pack(%q) -> %s
  call count(%x) -> %c
  bind k = %c
  call until(%w) -> %t
  call positions(%w) -> %y
  return %s, %t, %y
}
""",
    # `pack` has no size, so that its input alone says when it changes; data says k; %y is returned
    {"p": "sized", "q": "sized", "r": "sized", "s": "output", "c": "transient", "t": "output", "y": "output"},
)
_BRANCH = (
    """program () {
  %x: bool[] input slot 0
  %w: float32[4] constant slot 1
  %a: float32[4] transient slot 2
  %b: float32[4] transient slot 3
  %y: float32[4] transient slot 4
  if %x {
    call pack(%w) -> %a
    yield %a
  } else {
    call add(%w) -> %b
    yield %b
  } -> %y
  return %y
}
""",
    {"a": "transient", "b": "transient", "y": "output"},  # a branch runs when it is taken
)


@pytest.mark.parametrize(("text", "lifetimes"), [_PREPARED, _SIZED, _BRANCH])
def test_what_depends_on_constants_and_sizes_alone_is_of_no_run(text: str, lifetimes: dict[str, str]) -> None:
    sizes: dict[str, Collection[str] | None] = {"random": None, "positions": {"n"}, "until": {"k"}}
    program = prepare(parse_program(text), lambda function: sizes.get(function, ()))
    assert {name: program.value(name).storage.lifetime.value for name in lifetimes} == lifetimes


def _chain(statements: str, values: str) -> Program:
    return parse_program(f"program () {{ %x: float32[64] input slot 0 {values} {statements} }}")


def test_a_chain_takes_turns_in_two_places() -> None:
    values = " ".join(f"%{n}: float32[64] transient slot {k}" for k, n in enumerate("abcd", 1))
    calls = "call f(%x) -> %a call f(%a) -> %b call f(%b) -> %c call f(%c) -> %d call f(%d) -> %y return %y"
    placed = place(_chain(calls, values + " %y: float32[64] output slot 5"))
    assert [placed.value(n).storage.place for n in "abcdy"] == [0, 256, 0, 256, -1]
    assert arena_bytes(placed) == 512
    verify(placed)


def test_parts_of_a_join_lie_in_it() -> None:
    values = "%a: float32[64] transient slot 1 %b: float32[32] transient slot 2 %j: float32[96] transient slot 3 "
    calls = "call f(%x) -> %a call f(%a) -> %b join %a, %b -> %j call f(%j) -> %y return %y"
    placed = place(_chain(calls, values + "%y: float32[64] output slot 4"))
    whole = placed.value("j").storage.place
    assert whole is not None
    assert [placed.value(n).storage.place for n in "ab"] == [whole, whole + 256]
    verify(placed)


def test_what_a_loop_reads_lives_until_it_ends() -> None:
    text = """program () {
  %n: int64[] input slot 0
  %go: bool[] input slot 1
  %x: float32[64] input slot 2
  %a: float32[64] transient slot 3
  %s: float32[64] transient slot 4
  %i: int64[] transient slot 5
  %g: bool[] transient slot 6
  %t: float32[64] transient slot 7
  %u: float32[64] transient slot 8
  %y: float32[64] output slot 9
  call f(%x) -> %a
  loop %n while %go from (%x) {
    call f(%s, %a) -> %t
    call f(%t) -> %u
    yield %g, %u
  } -> %s, %i, %g
  call f(%s) -> %y
  return %y
}
"""
    placed = place(parse_program(text))
    verify(placed)
    places = {n: placed.value(n).storage.place for n in "astu"}
    assert places["a"] not in {places["t"], places["u"], places["s"]}  # the next iteration reads it


def test_images_of_one_width_share_memory_and_have_no_place_in_the_arena() -> None:
    scope = 'scope "global.texture"'
    values = " ".join(f"%{n}: float32[1, 2, 3, 5, 4] transient slot {k} {scope}" for k, n in enumerate("abc", 1))
    calls = "call f(%x) -> %a call f(%a) -> %b call f(%b) -> %c call f(%c) -> %y return %y"
    placed = place(_chain(calls, values + " %y: float32[64] output slot 4"))
    storages = [placed.value(n).storage for n in "abc"]
    assert [s.slot for s in storages] == [1, 2, 1]
    assert {(s.place, s.width) for s in storages} == {(-1, 5)}
    assert graph_of(placed).image_widths == (0, 5, 5, 0)


def test_places_that_sizes_decide_are_left_open() -> None:
    text = """program (n in 1..64) {
  %x: float32[n] input slot 0
  %a: float32[n] transient slot 7
  %y: float32[n] output slot 9
  call f(%x) -> %a
  call f(%a) -> %y
  return %y
}
"""
    placed = place(parse_program(text))
    assert "transient slot 1 at ?" in print_program(placed)
    assert graph_of(placed).lifetimes == (-1, -1, 0, 1, -1, -1)
    verify(placed)
