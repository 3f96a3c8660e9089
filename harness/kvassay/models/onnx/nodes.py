"""A graph under construction: nodes, initializers, inputs and outputs, with fresh names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

MICROSOFT = "com.microsoft"


@dataclass
class Builder:
    """Collects the parts of a graph."""

    nodes: list[NodeProto] = field(default_factory=list)
    initializers: dict[str, TensorProto] = field(default_factory=dict)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    outputs: list[ValueInfoProto] = field(default_factory=list)

    def add(
        self,
        op: str,
        inputs: list[str],
        name: str,
        outputs: int = 1,
        domain: str = "",
        **given: Any,
    ) -> list[str]:
        """A node `name`; the names of its outputs."""
        made = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(op, inputs, made, name=f"{name}/{op}", domain=domain, **given)
        )
        return made

    def one(self, op: str, inputs: list[str], name: str, domain: str = "", **given: Any) -> str:
        """A node with one output; its name."""
        return self.add(op, inputs, name, 1, domain, **given)[0]

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """An initializer, once a name."""
        if name not in self.initializers:
            array = np.ascontiguousarray(value)
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def numbers(self, *values: int) -> str:
        """An int64 initializer, for shapes and axes."""
        return self.constant("n" + "_".join(map(str, values)), np.array(values, np.int64))

    def reshape(self, x: str, name: str, *shape: int) -> str:
        """A view of x; -1 for the number of tokens."""
        return self.one("Reshape", [x, self.numbers(*shape)], name)

    def input(self, name: str, kind: int, shape: list[int | str] | None) -> str:
        """An input of the graph."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, kind: int, shape: list[int | str] | None) -> None:
        """An output of the graph."""
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def graph(self, name: str) -> GraphProto:
        """The finished graph."""
        made = list(self.initializers.values())
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, made)
