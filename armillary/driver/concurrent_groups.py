"""Concurrent groups: neighbours in run order that do not read one another's results, and can run at the same time.

In: the graph's nodes in run order. Out: for each node the first and the last node of its group. Invariant: no member
reads what another makes; inputs, load-time and size-time nodes and `__nop`s lie between members and belong to nobody.
The memory plan keeps what a member reads or writes while any of them runs, so that the runtime, which looks at the
places alone (runtime/native/arm_concurrent.c), may give a group to the threads as one job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from armillary.driver.load_time import Node, is_before

MOST = 8  # calls: ARM_MAX_LOOPS of the runtime


def concurrent_groups(nodes: Sequence[Node], nop: str, starts: Collection[int] = ()) -> list[tuple[int, int]]:
    """(first, last) of each node's group; a node without one is alone. None goes on past `starts`."""
    result = [(index, index) for index in range(len(nodes))]
    members: list[int] = []
    makers: list[frozenset[int]] = []  # the calls whose results a node shows: its own, or those behind a view or a join
    for index, node in enumerate(nodes):
        if index in starts:
            members = []
        sources = frozenset[int]().union(*(makers[source] for source, _ in node.inputs))
        if node.func is None or is_before(node):
            makers.append(frozenset())
        elif node.func == nop:
            makers.append(sources)
        else:
            makers.append(frozenset((index,)))
            is_control = node.func.startswith("__")
            if is_control or len(members) == MOST or not sources.isdisjoint(members):
                members = []
            if not is_control:
                members.append(index)
                result[members[0] : index + 1] = [(members[0], index)] * (index + 1 - members[0])
    return result
