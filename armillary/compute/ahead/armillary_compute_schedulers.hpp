// Who runs kernels: one thread, a pool of threads, OpenMP, a program's own. Part of `armillary_compute.hpp`.
//
// In: kernels with a window. Out: the window's parts, run once each. Invariant: `schedule` returns when all parts have run.
#pragma once

namespace armillary { namespace compute {

struct CPUInfo {};
struct ThreadInfo {
  int thread_id = 0, num_threads = 1;
  CPUInfo cpu_info;
};

class IKernel {
public:
  virtual ~IKernel() = default;
  const Window &window() const { return window_; }
  virtual bool is_parallelisable() const { return true; }
  virtual void run(const Window &window, const ThreadInfo &info = ThreadInfo()) = 0;

protected:
  void configure(const Window &window) { window_ = window; }

private:
  Window window_;
};
using ICPPKernel = IKernel;
using INEKernel = IKernel;

class IScheduler {
public:
  virtual ~IScheduler() = default;
  virtual void set_num_threads(unsigned int count) = 0;
  virtual unsigned int num_threads() const = 0;
  virtual void schedule(IKernel *kernel, unsigned int split_dimension) = 0;
};

// A line of a log, in libraries that were built with logging.
inline void log_schedule(const IKernel &kernel, unsigned int threads) {
#ifdef ARM_COMPUTE_LOGGING_ENABLED
  std::clog << "schedule " << typeid(kernel).name() << " over " << kernel.window().num_iterations(0) << "x"
            << kernel.window().num_iterations(1) << " on " << threads << " threads\n";
#else
  (void)kernel, (void)threads;
#endif
}

class SingleThreadScheduler final : public IScheduler {
public:
  static SingleThreadScheduler &get() {
    static SingleThreadScheduler one;
    return one;
  }
  void set_num_threads(unsigned int) override {}
  unsigned int num_threads() const override { return 1; }
  void schedule(IKernel *kernel, unsigned int) override {
    log_schedule(*kernel, 1);
    kernel->run(kernel->window());
  }
};

#ifndef NO_MULTI_THREADING
// Splits windows over threads; the calling thread takes the last part, and an error of any part reaches the caller.
class CPPScheduler final : public IScheduler {
public:
  static CPPScheduler &get() {
    static CPPScheduler one;
    return one;
  }
  void set_num_threads(unsigned int count) override { threads_ = count ? count : cores(); }
  unsigned int num_threads() const override { return threads_; }
  void schedule(IKernel *kernel, unsigned int split_dimension) override {
    const Window &window = kernel->window();
    const unsigned int parts = unsigned(std::min<size_t>(window.num_iterations(split_dimension), threads_));
    if (parts == 0) return;
    log_schedule(*kernel, parts);
    if (!kernel->is_parallelisable() || parts == 1) return kernel->run(window);
    std::vector<std::exception_ptr> errors(parts);
    auto body = [&](unsigned int t) {
      ThreadInfo info;
      info.thread_id = int(t), info.num_threads = int(parts);
      try {
        kernel->run(window.split_window(split_dimension, t, parts), info);
      } catch (...) {
        errors[t] = std::current_exception();
      }
    };
    std::vector<std::thread> others;
    for (unsigned int t = 0; t + 1 < parts; t++) others.emplace_back(body, t);
    body(parts - 1);
    for (auto &other : others) other.join();
    for (auto &error : errors)
      if (error) std::rethrow_exception(error);
  }

private:
  static unsigned int cores() { return std::max(1u, std::thread::hardware_concurrency()); }
  unsigned int threads_ = cores();
};
#endif

#if defined(ARM_COMPUTE_OPENMP_SCHEDULER) && defined(_OPENMP)
// Splits windows over OpenMP's threads.
class OMPScheduler final : public IScheduler {
public:
  static OMPScheduler &get() {
    static OMPScheduler one;
    return one;
  }
  void set_num_threads(unsigned int count) override { threads_ = count ? count : unsigned(omp_get_max_threads()); }
  unsigned int num_threads() const override { return threads_; }
  void schedule(IKernel *kernel, unsigned int split_dimension) override {
    const Window &window = kernel->window();
    const int parts = int(std::min<size_t>(window.num_iterations(split_dimension), threads_));
    if (parts == 0) return;
    log_schedule(*kernel, unsigned(parts));
    if (!kernel->is_parallelisable() || parts == 1) return kernel->run(window);
    std::exception_ptr error;
#pragma omp parallel for num_threads(parts)
    for (int t = 0; t < parts; t++) {
      ThreadInfo info;
      info.thread_id = t, info.num_threads = parts;
      try {
        kernel->run(window.split_window(split_dimension, size_t(t), size_t(parts)), info);
      } catch (...) {
#pragma omp critical
        error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  }

private:
  unsigned int threads_ = unsigned(omp_get_max_threads());
};
#endif

class Scheduler {
public:
  enum class Type { ST, CPP, OMP, CUSTOM };
  static void set(Type type) {
    if (type == Type::OMP && !is_available(type))
      throw std::invalid_argument("there is no OpenMP: build with openmp=1, and compile programs with -fopenmp");
    if (type == Type::CPP && !is_available(type)) throw std::invalid_argument("there are no threads: Type::ST");
    if (type == Type::CUSTOM) throw std::invalid_argument("a scheduler of your own is set as an object");
    present() = {type, nullptr};
  }
  static void set(std::shared_ptr<IScheduler> own) { present() = {Type::CUSTOM, std::move(own)}; }
  static Type get_type() { return present().first; }
  static bool is_available(Type type) {
#if defined(ARM_COMPUTE_OPENMP_SCHEDULER) && defined(_OPENMP)
    return type != Type::CUSTOM;
#else
    return type == Type::ST || (type == Type::CPP && has_threads);
#endif
  }
  static IScheduler &get() {
    if (present().second) return *present().second;
#if defined(ARM_COMPUTE_OPENMP_SCHEDULER) && defined(_OPENMP)
    if (present().first == Type::OMP) return OMPScheduler::get();
#endif
#ifndef NO_MULTI_THREADING
    if (present().first == Type::CPP) return CPPScheduler::get();
#endif
    return SingleThreadScheduler::get();
  }

private:
#ifdef NO_MULTI_THREADING
  static constexpr bool has_threads = false;
#else
  static constexpr bool has_threads = true;
#endif
  static std::pair<Type, std::shared_ptr<IScheduler>> &present() {
#ifdef ARM_COMPUTE_CPP_SCHEDULER
    static std::pair<Type, std::shared_ptr<IScheduler>> it{Type::CPP, nullptr};
#else
    static std::pair<Type, std::shared_ptr<IScheduler>> it{Type::ST, nullptr};
#endif
    return it;
  }
};
using NEScheduler = Scheduler;

}} // namespace armillary::compute
