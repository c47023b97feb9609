"""Operators of OpenCLML are recorded once and replayed where device, header and driver can; else each is enqueued.

The vendor's functions are stood for by ones that write down who called them: neither SDK nor device is here.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from armillary.base.config import setting

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
needs_cxx = pytest.mark.skipif(COMPILER is None and not setting("CI"), reason="no C++ compiler")
NATIVE = Path(__file__).parents[2] / "armillary" / "offload" / "clml" / "native"
PROGRAM = """
#include <string>
#include <vector>
#include <cstdio>
typedef int cl_int; typedef unsigned cl_uint;
struct _queue {}; struct _recording {};
typedef void *cl_context; typedef void *cl_device_id;
typedef _queue *cl_command_queue; typedef _recording *cl_recording_qcom;
#define CL_SUCCESS 0
#ifdef DECLARED
#define CL_QUEUE_RECORDABLE_QCOM 77
#endif
static _queue recorder, live; static _recording kept; static cl_int refusal = REFUSAL;
static void told(const char *text) { std::printf("%s ", text); }
static cl_command_queue clCreateCommandQueue(cl_context, cl_device_id, unsigned long flags, cl_int *code) {
  told(flags == 77 ? "queue" : "wrong"); *code = 0; return &recorder; }
static cl_int clReleaseCommandQueue(cl_command_queue) { told("-queue"); return 0; }
static cl_recording_qcom clNewRecordingQCOM(cl_command_queue, cl_int *code) {
  told("new"); *code = refusal; return refusal ? nullptr : &kept; }
static cl_int clEndRecordingQCOM(cl_recording_qcom) { told("end"); return 0; }
static cl_int clReleaseRecordingQCOM(cl_recording_qcom) { told("-recording"); return 0; }
#include "recording.hpp"
static cl_int enqueue(cl_command_queue q, int op, int, cl_uint, const void *, void *) {
  std::printf("%s%d ", q == &live ? "run" : "record", op); return 0; }
typedef const void *P;
#define PAIR cl_uint, P
static cl_int again(cl_command_queue q, cl_recording_qcom r, PAIR, PAIR, PAIR, PAIR, PAIR, PAIR, PAIR, PAIR, void *) {
  told(q == &live && r == &kept ? "replay" : "wrong"); return 0; }
struct Table {
  decltype(&enqueue) clEnqueueMLOpQCOM = enqueue;
#ifdef REPLAYS
#ifdef OTHER
  cl_int (*clEnqueueRecordingMLOpQCOM)(cl_command_queue, cl_recording_qcom) = nullptr;
#else
  decltype(&again) clEnqueueRecordingMLOpQCOM = again;
#endif
#endif
};
int main() {
  Table ml; std::vector<int> ops = {1, 2};
  {
    clml::Recording recording;
    recording.record(ml, nullptr, nullptr, ops, 0);
    for (int k = 0; k < 2; k++) {
      cl_int code = 0;
      if (recording.replay(ml, &live, &code)) continue;
      for (int op : ops) ml.clEnqueueMLOpQCOM(&live, op, 0, 0, nullptr, nullptr);
    }
  }
  std::printf("%d%d", clml::has_extension("cl_a cl_qcom_recordable_queues", "cl_qcom_recordable_queues"),
              clml::has_extension("cl_qcom_recordable_queues_2", "cl_qcom_recordable_queues"));
}
"""
ONE_BY_ONE = "run1 run2 run1 run2 10"


@needs_cxx
@pytest.mark.parametrize(
    ("flags", "calls"),
    [
        (
            ["-DDECLARED", "-DREPLAYS", "-DREFUSAL=0"],
            "queue new record1 record2 end replay replay -recording -queue 10",
        ),
        (["-DDECLARED", "-DREPLAYS", "-DREFUSAL=-35"], f"queue new -queue {ONE_BY_ONE}"),
        (["-DDECLARED", "-DREFUSAL=0"], ONE_BY_ONE),
        (["-DDECLARED", "-DREPLAYS", "-DOTHER", "-DREFUSAL=0"], ONE_BY_ONE),
        (["-DREPLAYS", "-DREFUSAL=0"], ONE_BY_ONE),
    ],
    ids=["recorded", "refused", "table-without-replay", "replay-of-another-version", "header-without-recordings"],
)
def test_operators_are_recorded_where_that_is_possible(tmp_path: Path, flags: list[str], calls: str) -> None:
    (tmp_path / "main.cpp").write_text(PROGRAM)
    command = [str(COMPILER), "-std=c++17", "-O0", "-w", f"-I{NATIVE}", *flags, str(tmp_path / "main.cpp")]
    subprocess.run([*command, "-o", str(tmp_path / "main")], check=True, timeout=120)
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == calls
    assert ("not recorded: error -35" in done.stderr) == ("-DREFUSAL=-35" in flags)
