// Memory that functions share: groups of temporary tensors, lifetimes, pools. Part of `armillary_compute.hpp`.
//
// In: `manage` and `allocate` calls, in the order in which tensors are used. Out: blobs that tensors whose lifetimes do
// not meet share. Invariant: nothing is allocated between `finalize` and the end of the pools; a thread that acquires a
// group has a pool of its own, and waits while there is none.
#pragma once

#ifndef NO_MULTI_THREADING
#include <condition_variable>
#include <mutex>
#endif

namespace armillary { namespace compute {

#ifdef NO_MULTI_THREADING
using Mutex = int;
struct Lock {
  explicit Lock(Mutex &) {}
};
struct Condition { // nobody else can make it true
  template <class Test> void wait(Lock &, Test &&is_true) {
    if (!is_true()) throw std::runtime_error("all pools of the memory manager are taken, and there is one thread");
  }
  void notify_one() {}
};
#else
using Mutex = std::mutex;
using Lock = std::unique_lock<std::mutex>;
using Condition = std::condition_variable;
#endif

class IAllocator {
public:
  virtual ~IAllocator() = default;
  virtual void *allocate(size_t size, size_t alignment) = 0;
  virtual void free(void *memory) = 0;
};

class Allocator final : public IAllocator {
public:
  void *allocate(size_t size, size_t) override { return ::operator new(size); }
  void free(void *memory) override { ::operator delete(memory); }
};

class ILifetimeManager {
public:
  virtual ~ILifetimeManager() = default;
};
class BlobLifetimeManager final : public ILifetimeManager {};
class IPoolManager {
public:
  virtual ~IPoolManager() = default;
};
class PoolManager final : public IPoolManager {};

class IMemoryManager {
public:
  virtual ~IMemoryManager() = default;
};

// Pools of blobs, each as large as the largest need of any group.
class MemoryManagerOnDemand final : public IMemoryManager {
public:
  MemoryManagerOnDemand(std::shared_ptr<ILifetimeManager> lifetimes, std::shared_ptr<IPoolManager> pools)
      : lifetimes_(std::move(lifetimes)), pools_(std::move(pools)) {}
  ~MemoryManagerOnDemand() override {
    for (auto &pool : all_)
      for (void *blob : pool) allocator_->free(blob);
  }
  void set_allocator(IAllocator *allocator) { allocator_ = allocator; }
  void set_num_pools(unsigned int count) { count_ = count; }
  void set_set_num_pools(unsigned int count) { set_num_pools(count); } // as the text spells it
  bool is_finalized() const { return is_finalized_; }
  void finalize() {
    if (!allocator_ || count_ == 0) throw std::runtime_error("the memory manager has no allocator or no pools");
    if (is_finalized_) throw std::runtime_error("the memory manager is finalized");
    for (unsigned int n = 0; n < count_; n++) {
      all_.emplace_back();
      for (size_t size : sizes_) all_.back().push_back(allocator_->allocate(size + READ_BEHIND, 64));
    }
    for (auto &pool : all_) idle_.push_back(&pool);
    is_finalized_ = true;
  }

private:
  friend class MemoryGroup;
  using Pool = std::vector<void *>;
  void need(std::vector<size_t> sizes) { // of a group, the largest first
    std::sort(sizes.rbegin(), sizes.rend());
    for (size_t n = 0; n < sizes.size(); n++) {
      if (n == sizes_.size()) sizes_.push_back(0);
      sizes_[n] = std::max(sizes_[n], sizes[n]);
    }
  }
  Pool *take() {
    if (!is_finalized_) throw std::runtime_error("the memory manager is not finalized");
    Lock lock(mutex_);
    freed_.wait(lock, [this] { return !idle_.empty(); });
    Pool *pool = idle_.back();
    idle_.pop_back();
    return pool;
  }
  void give(Pool *pool) {
    Lock lock(mutex_);
    idle_.push_back(pool);
    freed_.notify_one();
  }
  std::shared_ptr<ILifetimeManager> lifetimes_;
  std::shared_ptr<IPoolManager> pools_;
  IAllocator *allocator_ = nullptr;
  unsigned int count_ = 0;
  bool is_finalized_ = false;
  std::vector<size_t> sizes_;
  std::vector<Pool> all_;
  std::vector<Pool *> idle_;
  Mutex mutex_{};
  Condition freed_;
};

// Tensors that are needed together; without a manager each has memory of its own.
class MemoryGroup {
public:
  explicit MemoryGroup(std::shared_ptr<IMemoryManager> manager = nullptr)
      : manager_(std::dynamic_pointer_cast<MemoryManagerOnDemand>(manager)) {}
  MemoryGroup(const MemoryGroup &) = delete;
  MemoryGroup &operator=(const MemoryGroup &) = delete;
  void manage(Tensor *tensor) {
    if (!manager_) return;
    if (manager_->is_finalized()) throw std::runtime_error("the memory manager is finalized: configure before it");
    size_t blob = 0;
    while (blob < busy_.size() && busy_[blob]) blob++;
    if (blob == busy_.size()) busy_.push_back(false), sizes_.push_back(0);
    busy_[blob] = true;
    tensor->group_ = this;
    places_.emplace_back(tensor, blob);
  }
  void acquire() {
    if (!manager_ || places_.empty()) return;
    pool_ = manager_->take();
    const std::vector<size_t> order = by_size();
    for (auto &place : places_) place.first->place((*pool_)[order[place.second]]);
  }
  void release() {
    if (!pool_) return;
    for (auto &place : places_) place.first->place(nullptr);
    manager_->give(pool_);
    pool_ = nullptr;
  }

private:
  friend class TensorAllocator;
  void end(Tensor *tensor) { // its last reader is configured
    for (auto &place : places_)
      if (place.first == tensor) {
        sizes_[place.second] = std::max(sizes_[place.second], tensor->info()->total_size());
        busy_[place.second] = false;
        tensor->info()->set_is_resizable(false);
      }
    if (std::find(busy_.begin(), busy_.end(), true) == busy_.end()) manager_->need(sizes_);
  }
  std::vector<size_t> by_size() const { // the number of each blob among those of a pool, the largest first
    std::vector<size_t> order(sizes_.size());
    for (size_t n = 0; n < sizes_.size(); n++)
      for (size_t k = 0; k < sizes_.size(); k++)
        order[n] += sizes_[k] > sizes_[n] || (sizes_[k] == sizes_[n] && k < n);
    return order;
  }
  std::shared_ptr<MemoryManagerOnDemand> manager_;
  std::vector<std::pair<Tensor *, size_t>> places_;
  std::vector<bool> busy_;
  std::vector<size_t> sizes_;
  MemoryManagerOnDemand::Pool *pool_ = nullptr;
};
using IMemoryGroup = MemoryGroup;

inline void TensorAllocator::init(const TensorInfo &info) {
  if (owner_.has_memory()) throw std::runtime_error("the tensor is allocated: free it before it gets other information");
  owner_.info_ = info.without_padding();
}
inline void TensorAllocator::allocate() {
  if (owner_.group_ != nullptr) return owner_.group_->end(&owner_);
  owner_.take_memory();
  owner_.info_.set_is_resizable(false);
}
inline void TensorAllocator::free() {
  owner_.drop_memory();
  owner_.info_.set_is_resizable(true);
}

}} // namespace armillary::compute
