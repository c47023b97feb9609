"""The tables of kernels for Adreno GPUs (benchmarks/adreno.py): what they say; and how native code is counted."""

from __future__ import annotations

import csv
from pathlib import Path

from adreno import Counts, count, count_turn
from adreno_products import PRODUCTS
from adreno_tvm import LAYERS

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
LOOP = """l7:
mov.u32u32 r0.x, 0
l42:
(sy)(ss)add.s r49.y, r49.y, 1
alias.tex.b32.0 r40.x, (0x0)
isam (f32)(xyzw)r15.x, r9.y, s#0, t#0
(rpt3)mad.f32 r7.w, r15.x, (r)r13.w, (last)(r)r7.w
nop
(rpt2)nop
mad.f16 hr1.x, hr2.x, hr3.x, hr1.x
ldg.f32 r1.x, g[r0.x], 4
br p0.x, #l262
jump #l42
l262:
mul.f r1.x, r1.x, r2.x
end
"""


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open() as file:
        return list(csv.DictReader(file))


def test_multiply_adds_alu_instructions_and_reads_of_the_loop_are_counted() -> None:
    assert count(LOOP) == Counts(macs=5, alu=6, reads=2)
    assert count("mad.f32 r0.x, r1.x, r2.x, r0.x\nadd.f r0.x, r0.x, r1.x\n") == Counts(1, 2, 0)
    assert count("mov.u32u32 r0.x, 0\nisam (f32)(x)r1.x, r0.x, s#0, t#0\n") == Counts(0, 1, 1)


NESTED = """l1:
mul.f r1.x, r1.x, r2.x
l2:
(rpt1)mad.f32 r0.x, r1.x, r2.x, r0.x
ldl.u32 r1.x, l[r1.x], 1
br p0.x, #l2
mad.f32 r0.x, r1.x, r2.x, r0.x
br p0.x, #l1
add.f r0.x, r0.x, r1.x
"""


def test_loops_of_products_in_a_turn_count_as_often_as_they_turn() -> None:
    assert count_turn(NESTED, 1) == Counts(macs=3, alu=4, reads=1)
    assert count_turn(NESTED, 4) == Counts(macs=9, alu=10, reads=4)
    assert count_turn("mad.f32 r0.x, r1.x, r2.x, r0.x\nadd.f r0.x, r0.x, r1.x\n", 4) == Counts(1, 2, 0)


def test_products_and_attentions_take_no_more_instructions_than_the_other_compiler_s_convolutions() -> None:
    others = [
        float(row["other ALU/MAC"]) for row in rows("adreno_layers.csv") if row["layer"].startswith("resnet50_conv")
    ]
    found = rows("adreno_products.csv")
    assert [(row["product"], row["precision"]) for row in found] == [
        (name, precision) for precision in ("float32", "float16") for name in PRODUCTS
    ]
    for row in found:
        is_unpacked = "int4" in row["product"]  # each weight becomes a number for one multiply-add
        assert float(row["ALU/MAC"]) <= (8 if is_unpacked else min(others)), row
        assert row["spills"] == "0", row


def test_no_layer_takes_more_instructions_or_reads_than_the_other_compiler_s() -> None:
    found = rows("adreno_layers.csv")
    assert [row["layer"] for row in found] == list(LAYERS)
    for row in found:
        for what in ("ALU/MAC", "reads/MAC"):
            assert float(row[what]) <= float(row[f"other {what}"]), row


SPILLS = {("mobilenet-v2", "buffer", "float32", "fused_nn_conv2d_add_clip_1be87b16_kernel0")}


def test_kernels_do_not_spill_and_have_eight_waves_or_a_note_why_not() -> None:
    found = rows("adreno.csv")
    for row in found:
        waves = [int(row[f"waves {gpu}"]) for gpu in (660, 730, 830)]
        is_known = (row["network"], row["memory"], row["precision"], row["kernel"]) in SPILLS
        assert (row["spills"] == "0") != is_known and bool(row["few waves"]) == (min(waves) < 8), row
    kinds = {(row["network"], row["memory"], row["precision"]) for row in found}
    assert len(kinds) == 8 and len(found) > 200
    for what in ("conv2d", "depthwise", "pool2d"):
        assert any(what in row["kernel"] for row in found)


def test_kernels_in_textures_read_less_than_those_in_buffers() -> None:
    reads: dict[str, list[float]] = {"texture": [], "buffer": []}
    for row in rows("adreno.csv"):
        if row["reads/MAC"] != "-" and "conv2d" in row["kernel"] and "winograd" not in row["kernel"]:
            reads[row["memory"]].append(float(row["reads/MAC"]))
    middle = {memory: sorted(values)[len(values) // 2] for memory, values in reads.items()}
    assert middle["texture"] < middle["buffer"] / 2
