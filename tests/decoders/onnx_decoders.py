"""A Llama as four exporters write it in ONNX: GroupQueryAttention, Attention with a past, TensorScatter, Concat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from reference import Shape, Weights

FORMS = ("genai", "past", "scatter", "grown")
MS = "com.microsoft"
TABLE = 128  # positions of the rotary tables


class _Writer:
    def __init__(self, form: str, shape: Shape, weights: Weights, capacity: int, bits: int) -> None:
        self.form, self.shape, self.weights, self.bits = form, shape, weights, bits
        self.capacity: int | str = capacity if form == "scatter" else "past"
        self.nodes: list[onnx.NodeProto] = []
        self.initial: list[onnx.TensorProto] = []
        self.inputs, self.outputs = list[onnx.ValueInfoProto](), list[onnx.ValueInfoProto]()

    def node(self, op: str, inputs: list[str], output: str, domain: str = "", **attrs: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], output, domain=domain, **attrs))
        return output

    def give(self, name: str, array: np.ndarray) -> str:
        self.initial.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def linear(self, x: str, name: str) -> str:
        weight = self.weights[f"{name}.weight"]
        if not self.bits:
            return self.node("MatMul", [x, self.give(name, weight.T)], f"{name}.y")
        units, inner = weight.shape
        blocks = weight.reshape(units, -1, 32)
        scales = (np.abs(blocks).max(2) / 7).astype(np.float32)
        steps = np.clip(np.rint(blocks / scales[..., None]) + 8, 0, 15).astype(np.uint8)
        self.weights[f"{name}.weight"] = ((steps.astype(np.float32) - 8) * scales[..., None]).reshape(units, inner)
        packed = steps[..., 0::2] | (steps[..., 1::2] << 4)
        inputs = [x, self.give(f"{name}.q", packed), self.give(f"{name}.s", scales)]
        return self.node("MatMulNBits", inputs, f"{name}.y", MS, K=inner, N=units, bits=4, block_size=32)

    def norm(self, x: str, name: str) -> str:
        op = "SimplifiedLayerNormalization" if self.form == "genai" else "RMSNormalization"
        return self.node(op, [x, self.give(name, self.weights[f"{name}.weight"])], f"{name}.y", axis=-1, epsilon=1e-5)

    def value(self, name: str, kind: int, shape: list[int | str]) -> None:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))

    def attention(self, layer: int, q: str, k: str, v: str) -> str:
        s, at = self.shape, f"layer{layer}"
        for c in "kv":
            self.value(f"past.{layer}.{c}", TensorProto.FLOAT, [1, s.groups, self.capacity, s.size])
            total = self.capacity if self.form == "scatter" else "total"
            shape = [1, s.groups, total, s.size]
            self.outputs.append(helper.make_tensor_value_info(f"present.{layer}.{c}", TensorProto.FLOAT, shape))
        past, present = ([f"{n}.{layer}.{c}" for c in "kv"] for n in ("past", "present"))
        if self.form == "genai":
            inputs = [q, k, v, *past, "seqlens_k", "total_len", "cos", "sin"]
            named = {"num_heads": s.heads, "kv_num_heads": s.groups, "do_rotary": 1}
            made = helper.make_node("GroupQueryAttention", inputs, [f"{at}.a", *present], domain=MS, **named)
            self.nodes.append(made)
            return f"{at}.a"
        q = self.node("RotaryEmbedding", [q, "cos", "sin", "position_ids"], f"{at}.qr", num_heads=s.heads)
        k = self.node("RotaryEmbedding", [k, "cos", "sin", "position_ids"], f"{at}.kr", num_heads=s.groups)
        if self.form == "past":
            named = {"q_num_heads": s.heads, "kv_num_heads": s.groups, "is_causal": 1}
            self.nodes.append(helper.make_node("Attention", [q, k, v, "", *past], [f"{at}.a", *present], **named))
            return f"{at}.a"
        parts = [
            self.by_heads(x, f"{at}.{n}", c)
            for x, n, c in ((q, "q4", s.heads), (k, "k4", s.groups), (v, "v4", s.groups))
        ]
        if self.form == "grown":
            return self.grown(layer, parts, past, present)
        for x, old, new in zip(parts[1:], past, present, strict=True):
            self.node("TensorScatter", [old, x, "write"], new, axis=2)
        y = self.node("Attention", [parts[0], *present, "", "", "", "valid"], f"{at}.a4")
        flat = self.node("Transpose", [y], f"{at}.at", perm=[0, 2, 1, 3])
        return self.node("Reshape", [flat, self.give(f"{at}.flat", np.array([0, 0, s.heads * s.size]))], f"{at}.a")

    def grown(self, layer: int, parts: list[str], past: list[str], present: list[str]) -> str:
        """Attention of plain operators, as optimum writes it."""
        s, at = self.shape, f"layer{layer}"
        many = []
        for n, x, old, new in zip("kv", parts[1:], past, present, strict=True):
            self.node("Concat", [old, x], new, axis=2)
            wide = self.node("Unsqueeze", [new, self.give(f"{at}.{n}two", np.array([2]))], f"{at}.{n}5")
            shape = self.give(f"{at}.{n}shape", np.array([1, 1, s.heads // s.groups, 1, 1]))
            wide = self.node("Expand", [wide, shape], f"{at}.{n}6")
            flat = self.give(f"{at}.{n}flat", np.array([0, s.heads, -1, s.size]))
            many.append(self.node("Reshape", [wide, flat], f"{at}.{n}7"))
        keys = self.node("Transpose", [many[0]], f"{at}.kt", perm=[0, 1, 3, 2])
        scores = self.node("MatMul", [parts[0], keys], f"{at}.scores")
        scale = self.give(f"{at}.scale", np.array(s.size**-0.5, np.float32))
        scores = self.node("Mul", [scores, scale], f"{at}.scaled")
        low = self.give(f"{at}.low", np.array(-1e30, np.float32))
        scores = self.node("Where", [self.seen(past[0], present[0], at), scores, low], f"{at}.masked")
        y = self.node("MatMul", [self.node("Softmax", [scores], f"{at}.soft"), many[1]], f"{at}.a4")
        flat = self.node("Transpose", [y], f"{at}.at", perm=[0, 2, 1, 3])
        return self.node("Reshape", [flat, self.give(f"{at}.flat", np.array([0, 0, s.heads * s.size]))], f"{at}.a")

    def seen(self, past: str, present: str, at: str) -> str:
        """Which positions a row sees: up to its own, of those that the mask has."""
        two, one, zero = (self.give(f"{at}.n{n}", np.array(n)) for n in (2, 1, 0))
        length, total = (
            self.node("Gather", [self.node("Shape", [x], f"{x}.shape"), two], f"{x}.length") for x in (past, present)
        )
        columns = self.node("Range", [zero, total, one], f"{at}.columns")
        rows = self.node("Range", [length, total, one], f"{at}.rows")
        rows = self.node("Unsqueeze", [rows, self.give(f"{at}.last", np.array([1]))], f"{at}.rows2")
        mask = self.node("Cast", ["attention_mask"], f"{at}.mask", to=TensorProto.BOOL)
        mask = self.node("Unsqueeze", [mask, self.give(f"{at}.axes", np.array([1, 2]))], f"{at}.mask4")
        return self.node("And", [self.node("LessOrEqual", [columns, rows], f"{at}.order"), mask], f"{at}.seen")

    def by_heads(self, x: str, name: str, count: int) -> str:
        shape = self.give(f"{name}.shape", np.array([0, 0, count, self.shape.size]))
        return self.node("Transpose", [self.node("Reshape", [x, shape], f"{name}.r")], f"{name}.t", perm=[0, 2, 1, 3])

    def model(self) -> onnx.ModelProto:
        s = self.shape
        self.value("input_ids", TensorProto.INT64, [1, "seq"])
        if self.form == "genai":
            self.value("seqlens_k", TensorProto.INT32, [1])
            self.value("total_len", TensorProto.INT32, [])
        else:
            self.value("position_ids", TensorProto.INT64, [1, "seq"])
        if self.form == "grown":
            self.value("attention_mask", TensorProto.INT64, [1, "total"])
        if self.form == "scatter":
            self.value("write", TensorProto.INT64, [1])
            self.value("valid", TensorProto.INT64, [1])
        angles = np.arange(TABLE)[:, None] / 1000.0 ** (np.arange(s.size // 2) / (s.size // 2))[None]
        self.give("cos", np.cos(angles).astype(np.float32))
        self.give("sin", np.sin(angles).astype(np.float32))
        x = self.node("Gather", [self.give("table", self.weights["model.embed_tokens.weight"]), "input_ids"], "x")
        for layer in range(s.layers):
            at = f"model.layers.{layer}"
            n = self.norm(x, f"{at}.input_layernorm")
            y = self.attention(layer, *(self.linear(n, f"{at}.self_attn.{c}_proj") for c in "qkv"))
            x = self.node("Add", [x, self.linear(y, f"{at}.self_attn.o_proj")], f"{at}.x1")
            n = self.norm(x, f"{at}.post_attention_layernorm")
            gate, up = (self.linear(n, f"{at}.mlp.{c}_proj") for c in ("gate", "up"))
            act = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{at}.sig")], f"{at}.act")
            y = self.linear(self.node("Mul", [act, up], f"{at}.m"), f"{at}.mlp.down_proj")
            x = self.node("Add", [x, y], f"{at}.x2")
        y = self.linear(self.norm(x, "model.norm"), "lm_head")
        self.outputs.insert(0, helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, "seq", s.words]))
        graph = helper.make_graph(self.nodes, self.form, self.inputs, self.outputs, self.initial)
        opsets = [helper.make_opsetid("", 24 if self.form == "scatter" else 23), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def write(path: Path, form: str, shape: Shape, weights: Weights, capacity: int = 64, bits: int = 0) -> None:
    """A file; with `bits` 4 its linear layers are MatMulNBits, and `weights` afterwards what those stand for."""
    onnx.save(_Writer(form, shape, weights, capacity, bits).model(), path)
