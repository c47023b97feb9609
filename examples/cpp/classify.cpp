// Runs a compiled network from C++: prints what it takes and gives, the largest values of its first output, and the time.
//
// Usage: classify net.tar [values.bin]: the float32 values of the first input, one after another (default: ones).
// Four threads then run it at once, each by its own runner; they share the parameters.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "armillary.hpp"

static std::vector<float> read_values(const char *path, std::size_t count) {
  std::vector<float> values(count);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char *>(values.data()), static_cast<std::streamsize>(count * sizeof(float))))
    throw armillary::Error(std::string(path) + ": " + std::to_string(count) + " float32 values are wanted");
  return values;
}

static int run(int argc, char **argv) {
  armillary::Runner runner(argv[1]);
  for (const auto &input : runner.inputs()) std::printf("input %s\n", input.text().c_str());
  for (const auto &output : runner.outputs()) std::printf("output %s\n", output.text().c_str());

  const armillary::TensorInfo input = runner.inputs().at(0);
  const auto count = static_cast<std::size_t>(input.elements());
  const std::vector<float> values = argc > 2 ? read_values(argv[2], count) : std::vector<float>(count, 1.0f);
  runner.set_input(input.name, values);
  runner.run();

  const std::vector<float> scores = runner.get_output<float>(0);
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t shown = std::min<std::size_t>(5, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
                    [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  for (std::size_t i = 0; i < shown; i++) std::printf("%5zu  %.6f\n", order[i], static_cast<double>(scores[order[i]]));

  double slowest = 0;
  std::string name = "none";
  for (const auto &node : runner.profile())
    if (node.seconds > slowest) slowest = node.seconds, name = node.name;
  std::printf("%.3f ms a run; the slowest kernel is %s\n", 1e3 * runner.time(10), name.c_str());

  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 1);
  armillary::Options alone;
  alone.threads = 1;
  for (std::size_t t = 0; t < wrong.size(); t++)
    threads.emplace_back([&, t] {
      try {
        armillary::Runner own = runner.clone(alone);
        std::copy(values.begin(), values.end(), own.input<float>(input.name));  // no copy beyond this one
        own.run();
        wrong[t] = std::equal(scores.begin(), scores.end(), own.output<float>(0)) ? 0 : 1;
      } catch (const std::exception &error) {
        std::fprintf(stderr, "thread %zu: %s\n", t, error.what());
      }
    });
  for (std::thread &thread : threads) thread.join();
  const int differing = std::accumulate(wrong.begin(), wrong.end(), 0);
  std::printf("%d of 4 threads differ\n", differing);
  return differing;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: classify net.tar [values.bin]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "classify: %s\n", error.what());
    return 1;
  }
}
