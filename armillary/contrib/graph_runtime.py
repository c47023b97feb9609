"""The graph executor under its oldest name."""

from armillary.contrib.graph_executor import GraphModule, create

__all__ = ["GraphModule", "create"]
