"""Instructions of Arm by LLVM's name: every row and form under qemu, bit for bit what the interpreter says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import compiled

from armillary import tir
from armillary.base.config import setting
from armillary.base.dtype import DType
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.tir import build as B
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.parser import parse_function
from armillary.tir.vendor_intrinsics import VENDOR_INTRINSICS, VendorIntrinsic

VECTORS = 16  # calls of each form
A64 = "llvm -mtriple=aarch64-linux-gnu -mattr=+v8.2a,+dotprod,+i8mm"
A32 = "llvm -mtriple=armv7a-linux-gnueabihf -mattr=+neon"
PLAIN = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
_A64 = ("sdot", "udot", "ummla", "smmla", "umull", "smull", "saddlp", "uaddlp", "addp", "sqrdmulh", "srshl")
_A32 = ("vpadd.v8i8", "vpadd.v8u8", "vpadals.v16i8.v8i16", "vpadalu.v16u8.v8u16")
TEXT = [f"llvm.{at}.neon.{n}" for at, names in (("aarch64", _A64), ("arm", _A32)) for n in names]
Form = tuple[VendorIntrinsic, tuple[str, ...]]


def _program(row: VendorIntrinsic, form: tuple[str, ...]) -> S.PrimFunc:
    """out[i] = row(x0[i], x1[i], …) on VECTORS vectors."""
    i = E.Var("i")

    def place(kind: str) -> tuple[E.Expr]:
        lanes = DType(kind).lanes
        return (E.Ramp(i * lanes, B.int32(1), lanes),)

    def buffer(name: str, kind: str) -> S.Buffer:
        return S.Buffer(name, (B.int32(VECTORS * DType(kind).lanes),), DType(kind).element)

    inputs = [buffer(f"x{k}", kind) for k, kind in enumerate(form[1:])]
    out = buffer("out", form[0])
    loads = [E.BufferLoad(b, place(kind)) for b, kind in zip(inputs, form[1:], strict=True)]
    call = tir.call_llvm_pure_intrin(form[0], row.name, len(loads), *loads)
    loop = S.For(i, B.int32(0), B.int32(VECTORS), S.LoopKind.PARALLEL, S.BufferStore(out, call, place(form[0])))
    return S.PrimFunc((*inputs, out), loop)


def _operands(row: VendorIntrinsic, form: tuple[str, ...]) -> list[Any]:
    """Any values, the extremes more often than others; shifts go past both ends of a lane."""
    rng, made = np.random.default_rng(len(row.name)), []
    for k, kind in enumerate(form[1:]):
        dtype = DType(kind)
        low, high = int(dtype.element.min_value), int(dtype.element.max_value)
        size = VECTORS * dtype.lanes
        if row.name.endswith("srshl") and k == 1:
            made.append(rng.integers(-dtype.bits - 3, dtype.bits + 3, size).astype(dtype.numpy))
            continue
        some = np.array([low, low + 1, 0, 1, high - 1, high])
        values = np.where(rng.random(size) < 0.5, rng.choice(some, size), rng.integers(low, high, size, endpoint=True))
        made.append(values.astype(dtype.numpy))
    return made


def _main(forms: list[Form]) -> str:
    """A C program: arrays of each function from standard input, its result to standard output."""
    lines = ["#include <stdint.h>", "#include <stdio.h>", "static char x[6][4096] __attribute__((aligned(64)));"]
    lines += [
        f"int32_t f{k}__p0(void *const *, const int64_t *, int64_t, int64_t, int64_t);" for k in range(len(forms))
    ]
    lines += ["int main(void) {", "  void *data[] = {x[0], x[1], x[2], x[3], x[4], x[5]};"]
    for k, (_, form) in enumerate(forms):
        *sizes, result = [VECTORS * DType(kind).lanes * DType(kind).element.bytes for kind in (*form[1:], form[0])]
        lines += [f"  if (fread(x[{n}], 1, {size}, stdin) != {size}) return 1;" for n, size in enumerate(sizes)]
        lines.append(f"  if (f{k}__p0(data, 0, 0, {VECTORS}, 0)) return 2;")
        lines.append(f"  if (fwrite(x[{len(sizes)}], 1, {result}, stdout) != {result}) return 3;")
    return "\n".join([*lines, "  return 0;", "}", ""])


@pytest.mark.parametrize(
    ("arch", "target", "tools", "emulator"),
    [
        ("aarch64", A64, "aarch64-linux-gnu-", "qemu-aarch64-static"),
        ("arm", A32, "arm-linux-gnueabihf-", "qemu-arm-static"),
    ],
)
def test_every_form_gives_the_bits_of_its_definition(
    arch: str, target: str, tools: str, emulator: str, tmp_path: Path
) -> None:
    if not all(map(shutil.which, (f"{tools}gcc", f"{tools}objdump", emulator))):
        assert not setting("CI"), "CI installs the cross compilers and qemu"
        pytest.skip(f"needs {tools}gcc and {emulator}")
    forms = [(row, form) for row in VENDOR_INTRINSICS.values() if row.arch == arch for form in row.forms]
    programs = [_program(*form) for form in forms]
    module, operands = compiled(programs, target), [_operands(*form) for form in forms]
    (tmp_path / "main.c").write_text(_main(forms))
    names = [f"k{k}.o" for k in range(len(module.objects))]
    for name, code in zip(names, module.objects, strict=True):
        (tmp_path / name).write_bytes(code)
    subprocess.run([f"{tools}gcc", "-static", "main.c", *names, "-o", "run"], cwd=tmp_path, check=True)
    given = b"".join(v.tobytes() for arrays in operands for v in arrays)
    command = ["timeout", "-s", "KILL", "60", emulator, "-cpu", "max", "./run"]
    done = subprocess.run(command, cwd=tmp_path, input=given, capture_output=True, check=True)
    at = 0
    for (row, form), program, arrays in zip(forms, programs, operands, strict=True):
        kind = DType(form[0])
        want = np.zeros(VECTORS * kind.lanes, kind.numpy)
        tir.interpret(program, *arrays, want)
        got = np.frombuffer(done.stdout, kind.numpy, want.size, at)
        np.testing.assert_array_equal(got, want, f"{row.name} {form}")
        at += want.nbytes
    assert at == len(done.stdout)
    text = subprocess.run([f"{tools}objdump", "-d", *names], cwd=tmp_path, capture_output=True, text=True, check=True)
    words = {word.split(".")[0] for word in text.stdout.split()}
    wanted = {
        row.name.rpartition(".")[2].removesuffix("s").removesuffix("u")
        if arch == "arm"
        else row.name.rpartition(".")[2]
        for row, _ in forms
    }
    assert wanted <= words, wanted - words


def _zeros(*kinds: str) -> list[E.Expr]:
    return [E.Broadcast(B.const(0, str(DType(k).element)), DType(k).lanes) for k in kinds]


@pytest.mark.parametrize("name", TEXT)
def test_names_of_the_text_with_and_without_types(name: str) -> None:
    base = name if name in VENDOR_INTRINSICS else name.split(".v8")[0].split(".v16")[0]
    full = {"vpadd": ("8x8",) * 3, "vpadals": ("16x8", "16x8", "8x16"), "vpadalu": ("16x8", "16x8", "8x16")}
    row = VENDOR_INTRINSICS[base]
    sign = "uint" if "u8" in name else "int"
    wanted = full.get(base.rpartition(".")[2])
    form = tuple(sign + width for width in wanted) if wanted else row.forms[0]
    assert form in row.forms
    call = tir.call_llvm_pure_intrin(form[0], name, tir.const(len(form) - 1, "uint32"), *_zeros(*form[1:]))
    assert call.dtype == form[0] and name in str(call)


SDOT = ("int32x4", "int8x16", "int8x16")


@pytest.mark.parametrize(
    ("dtype", "name", "count", "kinds", "words"),
    [
        ("int32x4", "llvm.aarch64.neon.sdt", 3, SDOT, r"no LLVM intrinsic 'llvm.aarch64.neon.sdt'.*sdot"),
        ("int32x4", "llvm.x86.avx512.vpdpbusd.512", 3, SDOT, "no LLVM intrinsic 'llvm.x86"),
        ("int32x4", "", 3, SDOT, "no LLVM intrinsic ''"),
        ("int32x4", 17, 3, SDOT, "name of type int, wanted a text"),
        ("int32x4", "llvm.aarch64.neon.sdot", 2, SDOT[:2], r"sdot: got .*\(int32x4, int8x16\), wanted"),
        ("int32x4", "llvm.aarch64.neon.sdot", 3, ("int32x4", "uint8x16", "int8x16"), "wanted one of: int32x4 of"),
        ("int16x8", "llvm.aarch64.neon.sdot", 3, SDOT, "got int16x8 of"),
        ("int32x4", "llvm.aarch64.neon.sdot.v2i32.v8i8", 3, SDOT, "which is llvm.aarch64.neon.sdot.v4i32.v16i8"),
        ("int32x4", "llvm.aarch64.neon.sdot", 4, SDOT, "num_signatures, wanted a whole number up to 3"),
        ("int32x4", "llvm.aarch64.neon.sdot", -1, SDOT, "num_signatures"),
        ("int32x4", "llvm.aarch64.neon.sdot", "3", SDOT, "got '3' for num_signatures"),
    ],
)
@pytest.mark.parametrize("make", [tir.call_llvm_pure_intrin, tir.call_llvm_intrin])
def test_what_is_not_there_is_refused_by_name(
    make: Any, dtype: str, name: Any, count: Any, kinds: tuple[str, ...], words: str
) -> None:
    with pytest.raises(TypeMismatch, match=f"(?s){words}"):
        make(dtype, name, count, *_zeros(*kinds))


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("llvm.aarch64.neon.sdot", PLAIN, "llvm.aarch64.neon.sdot without dotprod.*-mattr=.dotprod"),
        ("llvm.aarch64.neon.smmla", "llvm -mtriple=aarch64-linux-gnu -mattr=+v8.2a,+dotprod", "smmla without i8mm"),
        ("llvm.aarch64.neon.addp", A32, "addp on arm.*of aarch64"),
        ("llvm.aarch64.neon.addp", "llvm -mtriple=x86_64-linux-gnu", "addp on x86_64"),
        ("llvm.arm.neon.vpadd", A64, "vpadd on aarch64"),
        ("llvm.arm.neon.vpadals", "llvm -mtriple=armv7a-linux-gnueabihf", "vpadals without neon"),
        ("llvm.aarch64.neon.sdot", "c", "llvm.aarch64.neon.sdot|call_llvm_pure_intrin"),
    ],
)
def test_a_processor_without_the_instruction_is_refused_by_feature(name: str, target: str, words: str) -> None:
    row = VENDOR_INTRINSICS[name]
    with pytest.raises(UnsupportedError, match=f"(?s){words}"):
        compiled([_program(row, row.forms[0])], target)


@pytest.mark.parametrize("name", VENDOR_INTRINSICS)
def test_the_text_of_a_program_is_read_back_as_it_was(name: str) -> None:
    row = VENDOR_INTRINSICS[name]
    text = str(_program(row, row.forms[0]))
    assert f'"{name}"' in text and str(parse_function(text)) == text


def test_text_with_types_that_do_not_fit_is_refused_where_it_is_used() -> None:
    row = VENDOR_INTRINSICS["llvm.aarch64.neon.sdot"]
    function = parse_function(str(_program(row, row.forms[0])).replace("sdot", "udot"))
    with pytest.raises(TypeMismatch, match=r"udot: got int32x4 of \(int32x4, int8x16, int8x16\)"):
        compiled([function], A64)
    with pytest.raises(TypeMismatch, match="udot: got"):
        tir.interpret(function, *_operands(row, row.forms[0]), np.zeros(VECTORS * 4, np.int32))


def test_a_call_with_effects_compiles_where_its_result_is_not_used() -> None:
    kinds = VENDOR_INTRINSICS["llvm.aarch64.neon.sdot"].forms[0]
    call = tir.call_llvm_intrin(kinds[0], "llvm.aarch64.neon.sdot", 3, *_zeros(*kinds[1:]))
    loop = S.For(E.Var("i"), B.int32(0), B.int32(4), S.LoopKind.PARALLEL, S.Evaluate(call))
    assert compiled([S.PrimFunc((), loop)], A64).objects
    with pytest.raises(UnsupportedError, match="sdot without dotprod"):
        compiled([S.PrimFunc((), loop)], PLAIN)
