// Which values of a list of operators lie in the same memory: those that are never needed at once.
//
// In: for each value its bytes, the operator that writes it and the last one that reads it. Out: the number of its block,
// and the bytes of each block. Invariant: operators run one after the other; what an operator writes lies in no block that
// it reads; a value that nothing reads is kept while it is written.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace offload {

struct Life {
  size_t bytes;
  long first, last;  // numbers of operators; before all: -1, for ever: a number behind the last
};

struct MemoryPlan {
  std::vector<size_t> block_of, bytes;
};

// Values in the order in which they are written take the smallest free block that holds them, else the largest, which grows.
inline MemoryPlan plan_memory(const std::vector<Life> &lives) {
  MemoryPlan plan{std::vector<size_t>(lives.size()), {}};
  std::vector<size_t> order(lives.size());
  for (size_t k = 0; k < order.size(); k++) order[k] = k;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].first < lives[b].first; });
  std::vector<long> busy_until;
  for (size_t value : order) {
    const Life &life = lives[value];
    size_t best = plan.bytes.size();
    for (size_t block = 0; block < plan.bytes.size(); block++) {
      if (busy_until[block] >= life.first) continue;
      if (best == plan.bytes.size()) best = block;
      bool holds = plan.bytes[block] >= life.bytes, best_holds = plan.bytes[best] >= life.bytes;
      bool is_smaller = plan.bytes[block] < plan.bytes[best];
      if (holds ? (!best_holds || is_smaller) : (!best_holds && !is_smaller)) best = block;
    }
    if (best == plan.bytes.size()) plan.bytes.push_back(0), busy_until.push_back(0);
    plan.bytes[best] = std::max(plan.bytes[best], life.bytes);
    busy_until[best] = std::max(life.first, life.last);
    plan.block_of[value] = best;
  }
  return plan;
}

}  // namespace offload
