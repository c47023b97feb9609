// Arm Compute Library in the memory of the runtime that calls it: the workspace of its functions.
//
// In: a host. Out: a memory manager for functions that run one after another. Invariant: what they need while they run lies in
// regions that the host allocated, shared by all functions of the manager and given back with it; memory for what they keep
// (prepared weights) is the library's own, which asks nobody.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "arm_compute/runtime/BlobLifetimeManager.h"
#include "arm_compute/runtime/IAllocator.h"
#include "arm_compute/runtime/MemoryManagerOnDemand.h"
#include "arm_compute/runtime/MemoryRegion.h"
#include "arm_compute/runtime/PoolManager.h"
#include "arm_external.h"

namespace acl {

// Memory of the host, which aligns to 64 bytes, given back when the region goes.
class HostRegion final : public arm_compute::IMemoryRegion {
 public:
  HostRegion(const arm_external_host *host, size_t size, size_t alignment)
      : IMemoryRegion(size), host_(host), whole_(host->allocate(size + alignment)) {
    if (whole_ == nullptr) throw std::bad_alloc();
    uintptr_t at = reinterpret_cast<uintptr_t>(whole_);
    place_ = static_cast<uint8_t *>(whole_) + (alignment ? (alignment - at % alignment) % alignment : 0);
  }
  ~HostRegion() override { host_->release(whole_); }
  void *buffer() override { return place_; }
  const void *buffer() const override { return place_; }
  std::unique_ptr<IMemoryRegion> extract_subregion(size_t offset, size_t size) override {
    if (offset > _size || size > _size - offset) return nullptr;
    return std::make_unique<arm_compute::MemoryRegion>(place_ + offset, size);
  }

 private:
  const arm_external_host *host_;
  void *whole_;
  uint8_t *place_;
};

class HostAllocator final : public arm_compute::IAllocator {
 public:
  explicit HostAllocator(const arm_external_host *host) : host_(host) {}
  void *allocate(size_t size, size_t) override { return host_->allocate(size); }
  void free(void *memory) override { host_->release(memory); }
  std::unique_ptr<arm_compute::IMemoryRegion> make_region(size_t size, size_t alignment) override {
    return std::make_unique<HostRegion>(host_, size, alignment);
  }

 private:
  const arm_external_host *host_;
};

class Workspace {
 public:
  explicit Workspace(const arm_external_host *host)
      : allocator_(host),
        manager_(std::make_shared<arm_compute::MemoryManagerOnDemand>(std::make_shared<arm_compute::BlobLifetimeManager>(),
                                                                      std::make_shared<arm_compute::PoolManager>())) {}
  std::shared_ptr<arm_compute::IMemoryManager> manager() const { return manager_; }
  // After everything is configured.
  void populate() { manager_->populate(allocator_, 1); }

 private:
  HostAllocator allocator_;
  std::shared_ptr<arm_compute::MemoryManagerOnDemand> manager_;
};

}  // namespace acl
