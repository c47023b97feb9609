"""What runtimes of libraries share, without any library: memory for values, tuned operators, functions of C."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import armillary
from armillary.base.config import setting
from armillary.runtime.build_native import INCLUDE_DIR

PACKAGE = Path(armillary.__file__).parent / "offload"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
needs_cxx = pytest.mark.skipif(COMPILER is None and not setting("CI"), reason="no C++ compiler")
MAGIC = 0x434C4D4C54554E45

PROGRAM = r"""
#include <cstdio>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include "external_program.hpp"
#include "memory_plan.hpp"
#include "tuned_records.hpp"

static int check(const std::vector<offload::Life> &lives, const offload::MemoryPlan &plan) {
  for (size_t a = 0; a < lives.size(); a++) {
    if (plan.bytes[plan.block_of[a]] < lives[a].bytes) return 1;
    for (size_t b = 0; b < a; b++)
      if (plan.block_of[a] == plan.block_of[b] && lives[a].first <= std::max(lives[b].first, lives[b].last) &&
          lives[b].first <= std::max(lives[a].first, lives[a].last))
        return 2;
  }
  return 0;
}

// Refuses functions without a name, and runs without inputs.
struct Sum {
  Sum(const arm_external_function &function, const arm_external_host *) : first(function.num_constants) {
    if (*function.symbol == 0) throw std::runtime_error("a function has no name");
  }
  ~Sum() { std::puts("gone"); }
  void run(const arm_tensor *, int32_t num_inputs, const arm_tensor *, int32_t num_outputs) {
    if (num_inputs == 0) throw std::out_of_range("there are no inputs");
    std::printf("%d\n", first + num_inputs + num_outputs);
  }
  int32_t first;
};

static void call_as_c() {
  using External = offload::External<Sum>;
  char told[12] = "";
  void *handle = nullptr;
  arm_external_function function = {};
  function.symbol = "";
  function.num_constants = 100;
  int code = External::create(&function, nullptr, &handle, told, sizeof told);
  std::printf("%d %s %d\n", code, told, handle != nullptr);
  function.symbol = "main_0";
  std::printf("%d\n", External::create(&function, nullptr, &handle, told, sizeof told));
  std::printf("%d\n", External::run(handle, nullptr, 2, nullptr, 1, told, sizeof told));
  code = External::run(handle, nullptr, 0, nullptr, 1, told, sizeof told);
  std::printf("%d %s\n", code, told);
  External::destroy(handle);
}

int main(int, char **argv) {
  std::string what = argv[1];
  try {
    if (what == "external") call_as_c();
    if (what == "keep") clml::keep_tuned(argv[2], argv[3], argv[4]);
    if (what == "find") std::cout << clml::tuned_of(argv[2], argv[3]) << std::endl;
    if (what == "chain") {  // each operator reads what the one before wrote: two blocks, and one for the constant
      std::vector<offload::Life> lives{{40, -1, 0}, {7, -1, 9}};
      for (long k = 0; k < 9; k++) lives.push_back({size_t(10 + k), k, k + 1});
      offload::MemoryPlan plan = offload::plan_memory(lives);
      size_t sum = 0;
      for (size_t bytes : plan.bytes) sum += bytes;
      std::printf("%d %zu %zu\n", check(lives, plan), plan.bytes.size(), sum);
    }
    if (what == "random") {
      std::mt19937 random(std::stoi(argv[2]));
      for (int turn = 0; turn < 500; turn++) {
        std::vector<offload::Life> lives;
        for (int k = 0, n = 1 + int(random() % 40); k < n; k++) {
          long first = long(random() % 20) - 1;
          lives.push_back({1 + random() % 100, first, random() % 5 ? first + long(random() % 6) : -1});
        }
        if (int wrong = check(lives, offload::plan_memory(lives))) return std::printf("turn %d: %d\n", turn, wrong), 1;
      }
      std::puts("right");
    }
  } catch (const std::exception &error) {
    std::cerr << error.what() << std::endl;
    return 3;
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("headers")
    (folder / "main.cpp").write_text(PROGRAM)
    folders = PACKAGE / "native", PACKAGE / "clml" / "native", INCLUDE_DIR
    include = [f"-I{folder}" for folder in folders]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
    command = [str(COMPILER), *flags, *include, str(folder / "main.cpp"), "-o", str(folder / "main")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "main"


def call(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *words], capture_output=True, text=True, timeout=60, check=False)


@needs_cxx
def test_values_share_memory_only_if_they_are_never_needed_at_once(program: Path) -> None:
    seed = "20251"
    assert call(program, "random", seed).stdout == "right\n", f"seed {seed}"
    assert call(program, "chain").stdout.split() == ["0", "3", str(40 + 7 + 18)]


@needs_cxx
def test_what_a_program_throws_is_a_code_and_a_message_of_the_room_given(program: Path) -> None:
    wanted = ["-1 a function  0", "0", "103", "0", "-1 there are n", "gone"]
    assert call(program, "external").stdout.splitlines() == wanted


@needs_cxx
def test_a_file_of_tuned_operators_gives_back_what_was_kept_last(program: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "tuned")
    assert call(program, "find", path, "main_0").stdout == "\n"  # there is no file yet
    for symbol, text in (("main_0", "first"), ("main_1", "other"), ("main_0", "second, longer")):
        assert call(program, "keep", path, symbol, text).returncode == 0
    assert call(program, "find", path, "main_0").stdout == "second, longer\n"
    assert call(program, "find", path, "main_1").stdout == "other\n"
    begins = struct.pack("<QQQ", MAGIC, 0, 6) + b"main_0" + struct.pack("<Q", 5) + b"first"
    assert Path(path).read_bytes().startswith(begins)


@needs_cxx
@pytest.mark.parametrize("damage", ["cut", "magic", "length", "text"])
def test_a_damaged_file_of_tuned_operators_is_named(program: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "tuned"
    assert call(program, "keep", str(path), "main_0", "kept").returncode == 0
    data = path.read_bytes()
    path.write_bytes(
        {
            "cut": data[:-1],
            "magic": b"x" + data[1:],
            "length": data[:16] + struct.pack("<Q", 1 << 31) + data[24:],
            "text": b"tuned operators",
        }[damage]
    )
    message = call(program, "find", str(path), "main_0")
    assert message.returncode == 3 and f"{path} is no file of tuned operators, or is damaged" in message.stderr


@needs_cxx
def test_a_file_that_cannot_be_written_is_named(program: Path, tmp_path: Path) -> None:
    message = call(program, "keep", str(tmp_path / "none" / "tuned"), "main_0", "kept")
    assert message.returncode == 3 and "cannot be written" in message.stderr
