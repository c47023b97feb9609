"""Target strings, their misuse, and the CPU facts derived from them."""

from __future__ import annotations

import json
import os
import pickle
import random
import shlex
import subprocess
import sys

import pytest

from armillary.errors import TargetError, UnsupportedError
from armillary.ir import load_json, save_json
from armillary.target import Target, adreno, arm_cpu, cpu_model, host, mali
from armillary.target.boards import BOARDS
from armillary.target.cpu import _native_model, fast_math_flags, llvm_cpu, needed_features
from armillary.target.grammar import find_kind
from armillary.target.target import check_attributes, target_with_host, warn_of_attributes


@pytest.mark.parametrize(
    "text",
    [
        "llvm",
        "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu",
        "llvm --mcpu cortex-a72 -mattr +neon,+crc -fast-math",
        "opencl -device=adreno",
        "c -march=armv8-a",
        "llvm -keys=arm_cpu,cpu -device=arm_cpu -model='a b'",
    ],
)
def test_printed_form_parses_to_the_same_target(text: str) -> None:
    target = Target(text)
    assert Target(str(target)) == target
    assert Target(target.to_json()) == Target(target.export()) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert hash(Target(str(target))) == hash(target)


_LETTERS = "abcXYZ019.+-_= '\"\\/,:é"


def _attribute(draw: random.Random, want: type) -> object:
    if want is tuple:
        return [_word(draw) for _ in range(draw.randint(1, 3))]
    numbers = {bool: draw.random() < 0.5, int: draw.randint(0, 1 << 40), float: draw.choice((0.5, 3.0, 1e-9))}
    return numbers.get(want, _word(draw))


def _word(draw: random.Random, letters: str = _LETTERS) -> str:
    return "".join(draw.choice(letters) for _ in range(draw.randint(0, 6)))


@pytest.mark.parametrize("seed", range(200))
def test_random_targets_come_back_from_text_and_json(seed: int) -> None:
    """Of every kind, with any attributes, spaces and quotes in them, a host, and options in either spelling."""
    draw = random.Random(seed)
    kind = find_kind(draw.choice(("llvm", "c", "opencl")))
    given: dict[str, object] = {"kind": kind.name, "keys": [_word(draw, "ab_") for _ in range(draw.randint(0, 2))]}
    chosen = [name for name in kind.schema if name not in ("device", "tag") and draw.random() < 0.3]
    given |= {name: _attribute(draw, kind.schema[name]) for name in chosen}
    given |= {"device": draw.choice(("arm_cpu", "rk3399", "adreno"))} if draw.random() < 0.3 else {}
    target = Target(given, host=Target("llvm -mtriple=aarch64-linux-gnu") if draw.random() < 0.3 else None)
    alone = Target(given)
    assert Target(str(alone)) == alone and str(Target(str(alone))) == str(alone)
    assert Target(target.to_json()) == Target(target.export()) == target
    assert pickle.loads(pickle.dumps(target)) == target
    name, *options = shlex.split(str(alone))
    draw.shuffle(options)
    spelled = [f"-{option.replace('=', ' ', 1)}" if _is_plain(option) else shlex.quote(option) for option in options]
    assert Target(" ".join((name, *spelled))) == alone


def _is_plain(option: str) -> bool:
    """Whether `--name value` says the same as `-name=value`."""
    value = option.partition("=")[2]
    return bool(value) and not value.startswith("-") and not set(value) & set(" '\"\\")


def test_an_item_of_a_list_that_holds_a_comma_is_two() -> None:
    target = Target({"kind": "llvm", "mattr": ["+neon,+crc"]})
    assert target.mattr == ("+neon", "+crc") and Target(str(target)) == target


def test_attributes_print_by_name_after_the_keys() -> None:
    target = Target("llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+crc -device=arm_cpu -fast-math -num-cores 4")
    assert str(target) == (
        "llvm -keys=arm_cpu,cpu -device=arm_cpu -fast-math=1 -link-params=0 -mattr=+neon,+crc "
        "-mtriple=aarch64-linux-gnu -num-cores=4"
    )
    assert target.keys == ("arm_cpu", "cpu")
    assert target.mattr == ("+neon", "+crc")
    assert target.attrs["num-cores"] == 4


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("llvm -foo=1", "no attribute 'foo'(.|\n)*mtriple"),
        ("cudda", "unknown target kind(.|\n)*llvm"),
        ("llvm -mcpu=a -mcpu=b", "'mcpu' is given twice"),
        ("", "does not start with a kind"),
        ("-mcpu=a", "start with a kind"),
        ("llvm x", "expected -name=value"),
        ("llvm -num-cores=two", "must be int"),
        ("llvm -mcpu='a", "does not parse"),
        ('{"kind": ', "JSON does not parse"),
        ('{"mcpu": "a"}', "needs a kind"),
        ({"kind": "llvm", "mattr": [1]}, "strings"),
        (5, "cannot make a target"),
        (None, "cannot make a target"),
        ("llvm -mcp=a", "did you mean -mcpu"),
    ],
)
def test_misuse_is_a_target_error_that_says_what_is_valid(bad: object, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        Target(bad)


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "arm64-apple-macos", "armv7l-linux-gnueabihf", "armv8l-linux"])
def test_triples_of_arm_give_the_key_of_arm(triple: str) -> None:
    assert str(Target(f"llvm -mtriple={triple}")) == f"llvm -keys=arm_cpu,cpu -link-params=0 -mtriple={triple}"
    assert Target(f"llvm -keys=cpu -mtriple={triple}").keys == ("arm_cpu", "cpu")
    assert Target(str(Target(f"llvm -mtriple={triple}"))) == Target(f"llvm -mtriple={triple}")
    assert Target("llvm -mtriple=x86_64-linux-gnu").keys == ("cpu",)


def test_with_statement_nests() -> None:
    assert Target.current() is None
    with Target("llvm") as outer:
        with Target("c") as inner:
            assert Target.current() is inner
        assert Target.current() is outer
    with pytest.raises(TargetError, match="no current target"):
        Target.current(allow_none=False)


def test_host_is_part_of_the_value() -> None:
    target = Target("opencl", host="llvm -mtriple=arm64-linux-android")
    assert target.host == Target("llvm -mtriple=arm64-linux-android")
    assert target != Target("opencl")
    assert Target(target).host == target.host
    assert Target(target.export()) == target
    with pytest.raises(TargetError, match="already has the host"):
        Target(target, host="llvm")
    with pytest.raises(TargetError, match="does not change"):
        target.host = None


def test_kinds_come_from_their_manifests() -> None:
    assert {"c", "llvm", "opencl"} <= set(Target.list_kinds())
    assert Target("opencl").max_num_threads == 256
    assert Target("opencl -max_num_threads=512").max_num_threads == 512
    assert Target("llvm").kind.name == "llvm" and str(Target("llvm").kind) == "llvm"


def test_boards_by_name() -> None:
    assert arm_cpu("rasp4b64").mcpu == "cortex-a72"
    assert arm_cpu("pixel2").mtriple == "arm64-linux-android"
    assert arm_cpu("unheard-of").model == "unheard-of"
    assert mali().keys == ("mali", "opencl", "gpu")
    assert adreno("x").device_name == "adreno"


def test_mcpu_implies_its_features_and_arm64_is_aarch64() -> None:
    for triple in ("aarch64-linux-gnu", "arm64-linux-android"):
        model = cpu_model(f"llvm -mtriple={triple} -mcpu=cortex-a76")
        assert (model.arch, model.vector_bits, model.vector_registers) == ("aarch64", 128, 32)
        assert model.has("dotprod") and model.has_fma and not model.has("i8mm")
    assert cpu_model("llvm -mtriple=aarch64-linux-gnu -mattr=+v8.6a").has("i8mm")
    assert not cpu_model("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=-dotprod").has("dotprod")


def test_x86_levels_choose_the_vector_width() -> None:
    triple = "-mtriple=x86_64-linux-gnu"
    widths = {
        cpu: cpu_model(f"llvm {triple} -mcpu={cpu}").vector_bits
        for cpu in ("x86-64", "x86-64-v3", "x86-64-v4", "znver4")
    }
    assert widths == {"x86-64": 128, "x86-64-v3": 256, "x86-64-v4": 512, "znver4": 512}
    assert cpu_model(f"llvm {triple}").vector_bits == 128
    assert cpu_model(f"llvm {triple} -mattr=+avx512f").vector_bits == 512


def test_plain_llvm_is_this_machine_with_all_its_features() -> None:
    model = cpu_model("llvm")
    assert model.native and model == cpu_model("llvm -mcpu=native")
    assert model.l1 > 0 and model.lanes * 32 == model.vector_bits
    assert llvm_cpu(Target("llvm")).triple and "+" in llvm_cpu(Target("llvm")).features


def test_a_cpu_of_another_architecture_is_refused_with_the_triple_to_add() -> None:
    with pytest.raises(TargetError, match="-mtriple=aarch64-linux-gnu"):
        cpu_model("llvm -mtriple=x86_64-linux-gnu -mcpu=cortex-a76")
    with pytest.raises(TargetError, match="znver4 is a processor of x86_64"):
        cpu_model("llvm -mtriple=aarch64-linux-gnu -mcpu=znver4")
    assert cpu_model("llvm -mtriple=x86_64-linux-gnu -mcpu=generic").vector_bits == 128


def test_what_a_processor_must_have_is_what_decides_about_its_vectors() -> None:
    triple = "-mtriple=x86_64-linux-gnu"
    needs = {cpu: needed_features(Target(f"llvm {triple} -mcpu={cpu}")) for cpu in ("x86-64", "haswell", "znver4")}
    assert needs["x86-64"] == () and needs["haswell"] == ("avx", "fma", "avx2")
    assert set(needs["znver4"]) == {*needs["haswell"], "avx512f", "avx512dq", "avx512bw", "avx512vl"}
    assert needed_features(Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")) == ()


def test_a_guest_does_not_count_on_all_of_its_hosts_last_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "caches", lambda: {1: 48 << 10, 2: 2 << 20, 3: 480 << 20})
    for cpus, megabytes in ((2, 32), (8, 128), (64, 480), (None, 16)):
        monkeypatch.setattr(os, "cpu_count", lambda n=cpus: n)
        assert _native_model().l3 == megabytes << 20


def test_gpu_has_no_cpu_facts_and_native_needs_the_same_machine() -> None:
    with pytest.raises(TargetError, match="is no CPU"):
        cpu_model("opencl")
    with pytest.raises(TargetError, match="-mcpu=native"):
        cpu_model("llvm -mcpu=native -mtriple=riscv64-linux-gnu")


def test_float_abi_chooses_the_environment_of_an_arm_triple() -> None:
    hard = llvm_cpu(Target("llvm -mtriple=armv7-linux-gnueabi -mfloat-abi=hard"))
    soft = llvm_cpu(Target("llvm -mtriple=armv7-linux-gnueabihf -mfloat-abi=soft"))
    assert (hard.triple, soft.triple) == ("armv7-unknown-linux-gnueabihf", "armv7-unknown-linux-gnueabi")
    with pytest.raises(UnsupportedError, match=r"'mfloat-abi'(.|\n)*32-bit Arm"):
        llvm_cpu(Target("llvm -mtriple=aarch64-linux-gnu -mfloat-abi=hard"))


def test_abi_and_optimisation_level_reach_llvm_or_are_refused() -> None:
    found = llvm_cpu(Target("llvm -mtriple=riscv64-linux-gnu -mabi=lp64d -opt-level=3"))
    assert (found.abi, found.opt_level) == ("lp64d", 3)
    with pytest.raises(UnsupportedError, match=r"'mabi'(.|\n)*lp64d"):
        llvm_cpu(Target("llvm -mtriple=riscv64-linux-gnu -mabi=eabi"))
    with pytest.raises(TargetError, match="'opt-level' is 7"):
        llvm_cpu(Target("llvm -opt-level=7"))


def test_fast_math_flags_are_llvms() -> None:
    assert fast_math_flags(Target("llvm")) == ""
    assert fast_math_flags(Target("llvm -fast-math")) == "fast"
    assert fast_math_flags(Target("llvm -fast-math-nsz -fast-math-nnan")) == "nnan nsz"


@pytest.mark.parametrize("text", ["llvm -cl-opt=-x", "c -workspace-byte-alignment=8"])
def test_an_attribute_without_effect_is_refused_by_name_when_building(text: str) -> None:
    name = text.split(" -", 1)[1].split("=")[0]
    with pytest.raises(UnsupportedError, match=f"'{name}'"):
        check_attributes(Target(text))


@pytest.mark.parametrize(
    "text",
    [
        "llvm -num-cores=4",
        "llvm -unpacked-api",
        "c -interface-api=c",
    ],
)
def test_a_word_of_a_script_that_changes_nothing_is_warned_of(text: str) -> None:
    name = text.split(" -", 1)[1].split("=")[0]
    with pytest.warns(UserWarning, match=f"'{name}' has no effect"):
        warn_of_attributes(Target(text))


def test_importing_targets_does_not_load_llvm() -> None:
    code = "import sys, json, armillary.target, armillary.codegen\n"
    code += "print(json.dumps([m for m in sys.modules if 'llvm' in m]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["armillary.target.kinds.llvm"]


def test_the_texts_target_of_armv7_prints_as_the_text_has_it() -> None:
    want = "llvm -keys=arm_cpu,cpu -device=arm_cpu -link-params=0 -mtriple=armv7a-linux-gnueabihf"
    assert str(Target("llvm --device=arm_cpu --mtriple=armv7a-linux-gnueabihf")) == want
    assert Target(want) == Target(Target(want).to_json()) and str(Target(want)) == want
    check_attributes(Target("llvm -link-params=1"))  # parameters are in the library either way


@pytest.mark.parametrize(
    "text",
    [
        "llvm -keys=cpu -link-params=1 -runtime=c -system-lib=1",
        "llvm -keys=cpu -interface-api=c -link-params=0 -unpacked-api=1",
        "c -keys=cpu -interface-api=packed -runtime=c -system-lib=0 -unpacked-api=0",
    ],
)
def test_words_of_hosted_targets_are_read_and_printed(text: str) -> None:
    target = Target(text)
    assert str(target) == text and Target(target.to_json()) == target
    if "-unpacked-api=1" in text:
        with pytest.warns(UserWarning, match="has no effect: kernels"):
            warn_of_attributes(target)
    else:
        check_attributes(target)


def test_a_board_as_device_is_that_boards_cpu_and_never_the_host() -> None:
    target = Target("llvm -device=rasp4b")
    assert (target.mtriple, target.mcpu, target.keys[0]) == ("armv8l-linux-gnueabihf", "cortex-a72", "arm_cpu")
    assert cpu_model(target).arch == "arm" and Target(str(target)) == target
    assert Target("llvm -device=rk3399 -mcpu=cortex-a53").mcpu == "cortex-a53"
    assert Target("llvm -device=rasp4b -mtriple=aarch64-linux-gnu").mcpu == ""
    for name in BOARDS:
        assert cpu_model(arm_cpu(name)).arch == ("aarch64" if "64" in arm_cpu(name).mtriple else "arm"), name


def test_an_arm_target_without_a_triple_is_no_target_of_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for text in ("llvm -device=arm_cpu", "llvm -keys=arm_cpu,cpu -model=none-such"):
        with pytest.raises(TargetError, match=r"no triple(.|\n)*arm_cpu\('rk3399'\)"):
            llvm_cpu(Target(text))
    with pytest.raises(TargetError) as error:
        llvm_cpu(Target("llvm -device=arm_cpu -model=rasp5b"))
    assert "target.arm_cpu('rasp4b')" in error.value.hint and "rk3399" not in error.value.hint


@pytest.mark.parametrize("name", ["stm32f746xx", "stm32h7", "nrf5340dk", "cortex-m7", "RP2040"])
def test_microcontrollers_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{name} is a microcontroller"):
        arm_cpu(name)
    with pytest.raises(UnsupportedError, match=f"{name} is a microcontroller"):
        Target(f"llvm -device={name}")


def test_armv8_in_32_bits_has_neon_and_armv7_only_where_it_is_stated() -> None:
    assert cpu_model("llvm -mtriple=armv8l-linux-gnueabihf").has("neon")
    assert not cpu_model("llvm -mtriple=armv7a-linux-gnueabihf").has("neon")
    assert "-neon" in llvm_cpu(Target("llvm -mtriple=armv7a-linux-gnueabihf")).features
    assert "-neon" not in llvm_cpu(Target("llvm -mtriple=armv7a-linux-gnueabihf -mattr=+neon")).features


def test_llvm_hears_a_triple_with_its_vendor() -> None:
    assert llvm_cpu(Target("llvm -mtriple=aarch64-linux-android28")).triple == "aarch64-unknown-linux-android28"
    assert llvm_cpu(Target("llvm -mtriple=arm64-apple-macos")).triple == "arm64-apple-macos"


@pytest.mark.parametrize(
    ("triple", "system"),
    [("arm64-apple-darwin", "macOS"), ("x86_64-pc-windows-msvc", "Windows"), ("wasm32-unknown-unknown", "WebAssembly")],
)
def test_other_systems_are_refused_by_name(triple: str, system: str) -> None:
    with pytest.raises(UnsupportedError, match=f"code for {system} is not supported"):
        check_attributes(Target(f"llvm -mtriple={triple}"))


@pytest.mark.parametrize(
    ("text", "dsp", "mve"),
    [
        ("c -mcpu=cortex-m55", True, True),
        ("llvm -mcpu=cortex-m7", True, False),
        ("c -mcpu=cortex-m3", False, False),
        ("llvm -mcpu=cortex-m55 -mattr=+nomve", True, False),
        ("llvm -mcpu=cortex-m55 -mattr=+nodsp", False, False),
    ],
)
def test_controllers_are_arm_without_a_triple(text, dsp, mve):
    target = Target(text)
    assert target.keys == ("arm_cpu", "cpu")
    assert (target.features.has_dsp, target.features.has_mve) == (dsp, mve)


def test_target_has_a_json_form():
    target = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon", host="c")
    loaded = load_json(save_json(target))
    assert isinstance(loaded, Target)
    assert (str(loaded), str(loaded.host)) == (str(target), str(target.host))
    with pytest.raises(TargetError):
        load_json(save_json(target).replace("cortex-a72", "cortex-a72 -x").replace('"mcpu"', '"mcpuu"'))


def test_boards_are_targets_by_their_names_alone() -> None:
    assert Target("rasp4b64") == arm_cpu("rasp4b64")
    assert Target("rasp4b64 -mcpu=cortex-a76").mcpu == "cortex-a76"
    assert Target("rk3588").mcpu == Target("rasp5b64").mcpu == "cortex-a76"
    listed = target_with_host("opencl -device=mali, rk3588")
    assert listed.kind.name == "opencl" and listed.host == Target("rk3588")
    assert Target("native") == Target("llvm -mcpu=native")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("arm64", '"llvm -mtriple=aarch64-linux-gnu"'),
        ("cortexa72", '"llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"'),
        ("Skylake-AVX512", '"llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512"'),
        ("rasp4b6", "rasp4b64"),
        ("lvm", "llvm"),
    ],
)
def test_a_word_that_is_no_kind_is_answered_with_what_it_may_mean(word: str, meant: str) -> None:
    with pytest.raises(TargetError, match="unknown target kind") as error:
        Target(word)
    assert error.value.hint.startswith(f"did you mean {meant}? ")
