"""What a model calls its outputs: two keys of graph JSON that graphs of old lack.

In: graph JSON, or what the import recorded of the model. Out: names by output, and which outputs are used in part only.
Invariant: there are as many names as the graph has outputs, or none.
"""

from __future__ import annotations

from armillary.artifact.json_form import Reader, parse
from armillary.base.record import record
from armillary.errors import ArtifactError

MAX_OUTPUTS = 1 << 16


@record
class ModelOutputs:
    """Names of a graph's outputs; rows (output, axis, output whose value says how much of that axis is used).

    Packages of old have such rows; builds write none, as a size that the data says is a named one (`bind_size`).
    """

    names: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int, int], ...] = ()

    def to_json(self) -> dict[str, object]:
        """The keys of the graph; none where nothing is known."""
        if not self.names:
            return {}
        sizes: dict[str, object] = {"output_sizes": [list(row) for row in self.sizes]} if self.sizes else {}
        return {"output_names": list(self.names), **sizes}

    def check(self, count: int) -> None:
        """Refuse what does not fit a graph of so many outputs."""
        if self.names and len(self.names) != count:
            raise ArtifactError(f"graph.output_names has {len(self.names)} names for {count} outputs")
        if any(not (0 <= output < count and 0 <= size < count) for output, _, size in self.sizes):
            raise ArtifactError(f"graph.output_sizes names an output that is not there: the graph has {count}")


def read_outputs(root: Reader) -> ModelOutputs:
    """The outputs of a graph's JSON."""
    if not root.has("output_names"):
        return ModelOutputs()
    names = tuple(name.string() for name in root.get("output_names").elements(MAX_OUTPUTS))
    rows = root.get("output_sizes").elements(MAX_OUTPUTS) if root.has("output_sizes") else []
    return ModelOutputs(names, tuple(_row(row) for row in rows))


def outputs_of(graph_json: str, limit: int) -> ModelOutputs:
    """As `read_outputs`, of the JSON's text."""
    return read_outputs(Reader(parse(graph_json, "graph", limit), "graph"))


def _row(reader: Reader) -> tuple[int, int, int]:
    values = tuple(v.integer(0, MAX_OUTPUTS) for v in reader.elements())
    if len(values) != 3:
        raise reader.error("must be three numbers")
    return values[0], values[1], values[2]
