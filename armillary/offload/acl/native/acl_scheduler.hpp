// Arm Compute Library on the threads of the runtime that calls it.
//
// In: kernels and workloads that the library schedules. Out: the same, spread over the pool of the arm_external_host that is
// current. Invariant: thread_id is below num_threads() and one thread's at a time, as are the workspaces by thread. Where there
// are no more workloads than threads it is the workload's number: some kernels take their share by it, not by their window,
// and the pool may run two workloads on one thread. So the number of threads that a kernel hears is never above that of
// workloads: pooling of later versions would leave the share of the others undone. An exception in a workload is thrown again where it was scheduled.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "arm_compute/core/CPP/ICPPKernel.h"
#include "arm_compute/runtime/Scheduler.h"
#include "arm_external.h"

namespace acl {

class HostScheduler final : public arm_compute::IScheduler {
 public:
  // The host whose threads are used until the guard goes; one caller at a time.
  class Use {
   public:
    explicit Use(const arm_external_host *host) : lock_(mutex()) {
      static std::shared_ptr<HostScheduler> only = std::make_shared<HostScheduler>();
      arm_compute::Scheduler::set(only);
      current() = host;
    }
    ~Use() { current() = nullptr; }

   private:
    std::lock_guard<std::mutex> lock_;
  };

  void set_num_threads(unsigned int) override {}  // the pool's size is the host's choice
  unsigned int num_threads() const override { return current() ? static_cast<unsigned int>(current()->threads) : 1; }

  void schedule(arm_compute::ICPPKernel *kernel, const Hints &hints) override {
    spread(kernel, hints, kernel->window(), [kernel](const arm_compute::Window &window, const arm_compute::ThreadInfo &info) {
      kernel->run(window, info);
    });
  }
  // Later versions give the window: one of the two overrides.
  void schedule_op(arm_compute::ICPPKernel *kernel, const Hints &hints, arm_compute::ITensorPack &tensors) {
    schedule_op(kernel, hints, kernel->window(), tensors);
  }
  void schedule_op(arm_compute::ICPPKernel *kernel, const Hints &hints, const arm_compute::Window &all,
                   arm_compute::ITensorPack &tensors) {
    spread(kernel, hints, all, [kernel, &tensors](const arm_compute::Window &window, const arm_compute::ThreadInfo &info) {
      kernel->run_op(tensors, window, info);
    });
  }

 protected:
  void run_workloads(std::vector<Workload> &workloads) override {
    int threads = static_cast<int>(std::min<size_t>(num_threads(), workloads.size()));
    Job job{&workloads, threads, workloads.size() <= num_threads(), &cpu_info(), {}, {}};
    if (workloads.size() == 1 || current() == nullptr) {
      work(&job, 0, static_cast<int64_t>(workloads.size()), 0);
    } else {
      current()->parallel(current(), work, &job, static_cast<int64_t>(workloads.size()));
    }
    if (!job.failure.empty()) throw std::runtime_error(job.failure);
  }

 private:
  using Window = arm_compute::Window;
  struct Job {
    std::vector<Workload> *workloads;
    int threads;
    bool one_each;  // thread_id is the workload's number
    const arm_compute::CPUInfo *cpu;
    std::mutex lock;
    std::string failure;
  };

  static std::mutex &mutex() {
    static std::mutex only;
    return only;
  }
  static const arm_external_host *&current() {
    static const arm_external_host *host = nullptr;
    return host;
  }

  static int32_t work(void *context, int64_t begin, int64_t end, int64_t thread) {
    Job *job = static_cast<Job *>(context);
    arm_compute::ThreadInfo info;
    info.num_threads = job->threads;
    info.cpu_info = job->cpu;
    try {
      for (int64_t i = begin; i < end; i++) {
        info.thread_id = static_cast<int>(job->one_each ? i : thread);
        (*job->workloads)[static_cast<size_t>(i)](info);
      }
    } catch (const std::exception &error) {
      std::lock_guard<std::mutex> guard(job->lock);
      job->failure = error.what();
      return 1;
    }
    return 0;
  }

  template <typename Run>
  void spread(arm_compute::ICPPKernel *kernel, const Hints &hints, const Window &all, Run run) {
    bool both = hints.split_dimension() == split_dimensions_all;
    size_t axis = hints.split_dimension();
    if (both) axis = all.num_iterations(Window::DimX) >= num_threads() ? Window::DimX : Window::DimY;
    size_t parts = std::min<size_t>(all.num_iterations(axis), num_threads());
    if (all.num_iterations_total() == 0 || parts == 0) return;
    if (!kernel->is_parallelisable()) parts = 1;
    std::vector<Workload> workloads;
    for (size_t part = 0; part < parts; part++)
      workloads.push_back([=, &all](const arm_compute::ThreadInfo &info) {
        if (parts == 1) return run(all, info);
        Window own = all.split_window(axis, part, parts);
        if (!both) return run(own, info);
        Window place;
        place.set(Window::DimX, axis == Window::DimX ? Window::Dimension(part, parts) : Window::Dimension(0, 1));
        place.set(Window::DimY, axis == Window::DimY ? Window::Dimension(part, parts) : Window::Dimension(0, 1));
        kernel->run_nd(own, info, place);
      });
    run_workloads(workloads);
  }
};

}  // namespace acl
