// The functions of `arm_external_api` over a class of programs.
//
// In: a class that is made of a function and a host (arm_external.h), has `run(inputs, number, outputs, number)` and throws
// std::exception for what it refuses. Out: functions of C that give 0, or -1 and the message. Invariant: no exception leaves.
#pragma once

#include <cstdio>
#include <exception>

#include "arm_external.h"

namespace offload {

template <class Action>
int guarded(char *err, size_t size, Action action) {
  try {
    action();
    return 0;
  } catch (const std::exception &error) {
    std::snprintf(err, size, "%s", error.what());
    return -1;
  }
}

template <class Program>
struct External {
  static int create(const arm_external_function *function, const arm_external_host *host, void **handle, char *err, size_t size) {
    return guarded(err, size, [&] { *handle = new Program(*function, host); });
  }

  static int run(void *handle, const arm_tensor *inputs, int32_t num_inputs, const arm_tensor *outputs, int32_t num_outputs,
                 char *err, size_t size) {
    return guarded(err, size, [&] { static_cast<Program *>(handle)->run(inputs, num_inputs, outputs, num_outputs); });
  }

  static void destroy(void *handle) { delete static_cast<Program *>(handle); }
};

}  // namespace offload
