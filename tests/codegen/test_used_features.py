"""What machine code asks of a processor is read from the code itself, instruction by instruction."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from harness import compiled

from armillary.base.dtype import DType
from armillary.codegen.llvm.target import emit_object
from armillary.codegen.object.used_features import _aarch64, _sections, _Unknown, _x86, _x86_instruction, used_features
from armillary.target.cpu import needed_features
from armillary.target.target import Target
from armillary.tir import build as B
from armillary.tir import expr as E
from armillary.tir import stmt as S

X86, ARM = "llvm -mtriple=x86_64-linux-gnu -mcpu=", "llvm -mtriple=aarch64-linux-gnu -mcpu="
HALF = "define <8 x half> @f(<8 x half> %a, <8 x half> %b) {\n%r = fadd <8 x half> %a, %b\nret <8 x half> %r\n}"
COUNT = """
define <16 x i32> @f(<16 x i32> %a) {
  %r = call <16 x i32> @llvm.ctpop.v16i32(<16 x i32> %a)
  ret <16 x i32> %r
}
declare <16 x i32> @llvm.ctpop.v16i32(<16 x i32>)
"""
DOT = """
define <16 x i32> @f(<16 x i32> %s, <16 x i32> %a, <16 x i32> %b) {
  %r = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %s, <16 x i32> %a, <16 x i32> %b)
  ret <16 x i32> %r
}
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <16 x i32>, <16 x i32>)
"""
DOT_ARM = """
define <4 x i32> @f(<4 x i32> %s, <16 x i8> %a, <16 x i8> %b) {
  %r = call <4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8(<4 x i32> %s, <16 x i8> %a, <16 x i8> %b)
  ret <4 x i32> %r
}
declare <4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8(<4 x i32>, <16 x i8>, <16 x i8>)
"""
MATRIX_ARM = DOT_ARM.replace("sdot", "smmla")
SHIFT = "define i64 @f(i64 %a, i64 %n) {\n%r = shl i64 %a, %n\nret i64 %r\n}"
PLAIN = "define float @f(float %a, float %b) {\n%r = fadd float %a, %b\nret float %r\n}"


@pytest.mark.parametrize(
    ("ir", "target", "wanted"),
    [
        (PLAIN, X86 + "znver4", set()),
        (PLAIN, ARM + "cortex-a76", set()),
        (SHIFT, X86 + "haswell", {"bmi2"}),
        (HALF, X86 + "sapphirerapids", {"avx512fp16"}),
        (HALF, X86 + "haswell", {"f16c"}),
        (COUNT, X86 + "icelake-server", {"avx512vpopcntdq"}),
        (DOT, X86 + "cascadelake", {"avx512vnni"}),
        (HALF, ARM + "cortex-a76", {"fullfp16"}),
        (HALF, ARM + "cortex-a72", set()),
        (DOT_ARM, ARM + "cortex-a76", {"dotprod"}),
        (MATRIX_ARM, ARM + "neoverse-n2", {"i8mm"}),
    ],
)
def test_features_are_those_of_the_instructions(ir: str, target: str, wanted: set[str]) -> None:
    found = used_features(emit_object(ir, target))
    assert found == wanted
    assert set(needed_features(Target(target), found)) == wanted | set(needed_features(Target(target)))


FORMS = [  # one of each length and form; popcnt behind it is seen only if its end is known
    "55",
    "4155",
    "0fb6c0",
    "6690",
    "660f1f440000",
    "48b80102030405060708",
    "b801020304",
    "66b80102",
    "b07f",
    "a10102030405060708",
    "0f0b",
    "c3",
    "c20800",
    "e801020304",
    "eb05",
    "0f8401020304",
    "7405",
    "83f805",
    "81f801020304",
    "6681f80102",
    "4881f801020304",
    "f6c001",
    "f7c001020304",
    "66f7c00102",
    "f7d8",
    "f6d8",
    "69c001020304",
    "6bc005",
    "66c7000102",
    "c70001020304",
    "48c70001020304",
    "c60001",
    "c1e005",
    "d1e0",
    "0fba2005",
    "0fa4c105",
    "8b042501020304",
    "8b442405",
    "8b842401020304",
    "8b0501020304",
    "8b4005",
    "8b8001020304",
    "8b04c501020304",
    "418b0424",
    "418b4500",
    "660f70c01b",
    "0fc6c01b",
    "f30f10c0",
    "f20f5ac0",
    "0fc8",
    "c5f877",
    "c5f858c0",
    "c5f8c6c01b",
    "c5f970c01b",
    "c4e27918c0",
    "c4e37919c001",
    "c4e37d18c001",
    "62f17c4858c0",
    "62f17c485804c501020304",
    "62f1fd486f4001",
    "62f27d4898c0",
    "62f37d4819c001",
    "62f17dc870c01b",
    "62f1744ac2c000",
    "c5f891c0",
    "f0480fb111",
    "640fb600",
    "d8c0",
    "f3a4",
    "0fa2",
    "c9",
    "0fb0c8",
    "0f180501020304",
]


@pytest.mark.parametrize("text", FORMS)
def test_ends_of_x86_instructions_are_found(text: str) -> None:
    one = bytes.fromhex(text)
    assert _x86(one) == set()
    assert _x86(one + bytes.fromhex("f3480fb8c1")) == {"popcnt"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("f30fb8c1", "popcnt"),
        ("f3480fbdc1", "lzcnt"),
        ("c4e270f2c1", "bmi"),
        ("c4e271f7c1", "bmi2"),
        ("c4e37bf0c105", "bmi2"),
        ("0f38f001", "movbe"),
        ("f20f38f1c1", "sse4.2"),
        ("660f3a0ac101", "sse4.1"),
        ("660f3800c1", "ssse3"),
        ("f20f7cc1", "sse3"),
        ("c4e27913c1", "f16c"),
        ("c4e3791dc104", "f16c"),
        ("c4e27950c1", "avxvnni"),
        ("62f27d4850c1", "avx512vnni"),
        ("62f27e4852c1", "avx512bf16"),
        ("62f27e4872c1", "avx512bf16"),
        ("62f27f4872c1", "avx512bf16"),
        ("62f27d4854c1", "avx512bitalg"),
        ("62f27d4855c1", "avx512vpopcntdq"),
        ("62f27d488dc1", "avx512vbmi"),
        ("62f2fd488dc1", ""),
        ("62f27d4863c1", "avx512vbmi2"),
        ("62f37d4871c105", "avx512vbmi2"),
        ("62f27d4844c1", "avx512cd"),
        ("62f2fd48b4c1", "avx512ifma"),
        ("62f3fd48cec105", "gfni"),
        ("62f57c4858c1", "avx512fp16"),
        ("62f67d4898c1", "avx512fp16"),
        ("62f37c48c2c101", "avx512fp16"),
        ("62f27d48dcc1", "vaes"),
        ("c4e27bf5c1", "bmi2"),
    ],
)
def test_rarer_x86_instructions_are_known(text: str, name: str) -> None:
    assert _x86(bytes.fromhex(text)) == ({name} if name else set())


def test_code_that_is_not_understood_is_not_vouched_for() -> None:
    with pytest.raises(_Unknown):
        _x86(bytes.fromhex("8fe97880c1"))  # XOP
    for damaged in (b"", b"\x7fELF", emit_object(PLAIN, "llvm -mtriple=riscv64-linux-gnu")):
        assert used_features(damaged) is None
    assert "avx512vnni" in needed_features(Target(X86 + "cascadelake"), None)
    assert "dotprod" in needed_features(Target(ARM + "cortex-a76"), None)


def test_conversions_of_halves_are_for_every_arm_processor() -> None:
    words = {"fcvt s0, h1": 0x1EE24020, "fcvt d0, h1": 0x1EE2C020, "fcvt h0, s1": 0x1E23C020}
    assert _aarch64(b"".join(struct.pack("<I", word) for word in words.values())) == set()
    assert _aarch64(struct.pack("<I", 0x1EE22820)) == {"fullfp16"}  # fadd h0, h1, h2


def _rows() -> S.PrimFunc:
    """y[i] = x[i] * 2 + i over int8 and float: loops, calls, conversions."""
    size = 200
    x = S.Buffer("x", (B.int32(size),), DType("int8"))
    y = S.Buffer("y", (B.int32(size),), DType("float32"))
    i = E.Var("i")
    value = E.Add(E.Cast(DType("float32"), E.BufferLoad(x, (i,))), E.Cast(DType("float32"), i))
    body = S.BufferStore(y, E.Call(DType("float32"), "exp", (value,)), (i,))
    return S.PrimFunc((x, y), S.For(i, B.int32(0), B.int32(size), S.LoopKind.PARALLEL, body))


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("target", [X86 + "x86-64", X86 + "haswell", X86 + "znver4", "c"])
def test_instructions_end_where_objdump_says(target: str, tmp_path: Path) -> None:
    (code,) = compiled([_rows()], target).objects
    (tmp_path / "x.o").write_bytes(code)
    text = subprocess.check_output(["objdump", "-d", "-w", "--section=.text", str(tmp_path / "x.o")], text=True)
    starts = [int(found[1], 16) for found in re.finditer(r"^\s*([0-9a-f]+):\t[^\t]*\t", text, re.MULTILINE)]
    section = max(_sections(code), key=len)
    at, mine = 0, []
    while at < len(section):
        mine.append(at)
        at = _x86_instruction(section, at, set())
    assert mine == starts
