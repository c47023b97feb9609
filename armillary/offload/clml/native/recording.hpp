// The operators of a function, recorded once and replayed at each run: one command for the driver instead of one for each.
//
// In: the library's table of functions, its operators, the set of their tensors. Out: a queue that holds them, or none: where
// the device lacks cl_qcom_recordable_queues, the SDK's header does not declare it, its table cannot replay operators, or the
// driver refuses. Then they are enqueued one by one, with the same results. Invariant: tensors keep their memory between
// runs, so nothing of a recording is ever changed. Include this behind the header of the SDK.
#pragma once

#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace clml {

inline bool has_extension(const std::string &extensions, const std::string &name) {
  return (" " + extensions + " ").find(" " + name + " ") != std::string::npos;
}

#ifdef CL_QUEUE_RECORDABLE_QCOM

// Enqueues a recording. Nothing of it is changed: no arguments, tensors, offsets or sizes, and no events to wait for.
template <typename Library>
auto replay_all(const Library &ml, cl_command_queue queue, cl_recording_qcom recording)
    -> decltype(ml.clEnqueueRecordingMLOpQCOM(queue, recording, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0,
                                              nullptr, 0, nullptr, 0, nullptr, nullptr)) {
  return ml.clEnqueueRecordingMLOpQCOM(queue, recording, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0,
                                       nullptr, 0, nullptr, 0, nullptr, nullptr);
}

template <typename Library, typename = void>
struct CanReplay : std::false_type {};  // also where a version of the SDK wants other arguments
template <typename Library>
struct CanReplay<Library, std::void_t<decltype(replay_all(std::declval<const Library &>(), nullptr, nullptr))>>
    : std::true_type {};

class Recording {
 public:
  Recording() = default;
  Recording(const Recording &) = delete;
  Recording &operator=(const Recording &) = delete;
  ~Recording() { drop(); }

  // Records the operators; what the driver refuses is told, and they are not recorded.
  template <typename Library, typename Operator, typename Set>
  void record(const Library &ml, cl_context context, cl_device_id device, const std::vector<Operator> &ops, Set set) {
    if constexpr (CanReplay<Library>::value) {
      cl_int code = CL_SUCCESS;
      queue_ = clCreateCommandQueue(context, device, CL_QUEUE_RECORDABLE_QCOM, &code);
      if (code == CL_SUCCESS) recording_ = clNewRecordingQCOM(queue_, &code);
      for (size_t k = 0; code == CL_SUCCESS && k < ops.size(); k++)
        code = ml.clEnqueueMLOpQCOM(queue_, ops[k], set, 0, nullptr, nullptr);
      if (code == CL_SUCCESS) code = clEndRecordingQCOM(recording_);
      if (code == CL_SUCCESS) return;
      std::fprintf(stderr, "clml: %zu operators are not recorded: error %d\n", ops.size(), static_cast<int>(code));
      drop();
    }
  }

  // Enqueues all operators; false where none are recorded.
  template <typename Library>
  bool replay(const Library &ml, cl_command_queue queue, cl_int *code) const {
    if constexpr (CanReplay<Library>::value) {
      if (recording_ == nullptr) return false;
      *code = replay_all(ml, queue, recording_);
      return true;
    }
    return false;
  }

  // Lets go of what is recorded, before the operators are released.
  void drop() {
    if (recording_) clReleaseRecordingQCOM(recording_);
    if (queue_) clReleaseCommandQueue(queue_);
    recording_ = nullptr, queue_ = nullptr;
  }

 private:
  cl_command_queue queue_ = nullptr;
  cl_recording_qcom recording_ = nullptr;
};

#else  // an SDK without recordable queues

class Recording {
 public:
  template <typename Library, typename Operator, typename Set>
  void record(const Library &, cl_context, cl_device_id, const std::vector<Operator> &, Set) {}
  template <typename Library>
  bool replay(const Library &, cl_command_queue, cl_int *) const {
    return false;
  }
  void drop() {}
};

#endif

}  // namespace clml
