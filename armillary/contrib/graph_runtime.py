"""The graph executor under its oldest name.

In: a name. Out: what `contrib/graph_executor.py` has under its own. Invariant: no logic here.
"""

from armillary.contrib.graph_executor import GraphModule, create

__all__ = ["GraphModule", "create"]
