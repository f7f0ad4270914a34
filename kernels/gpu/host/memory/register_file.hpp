// One block's registers, as setmaxnreg moves them between warpgroups.
#pragma once

#include <string>
#include <vector>

#include "gpu/host/executor/runtime.hpp"

namespace gpu::host {

class Block;
struct Fiber;
struct Operation;

/// At launch every thread has what __launch_bounds__ lets the compiler take: the multiprocessor's
/// 65536 over the threads that it holds at once.
class RegisterFile {
 public:
  void reset(const Launch& launch);

  /// Called by a warp's last lane. Empty, or what is wrong with the request.
  std::string request(Block& block, int warp, int registers, bool increase);
  /// Whether the warp has what it asked for.
  bool granted(int warp) const { return warps_[warp].wanted == 0; }
  void add_waiter(Fiber& fiber) { waiters_.push_back(&fiber); }

  /// A warpgroup whose warps did not all make the same requests, in words, or empty.
  std::string unfinished() const;

 private:
  struct PerWarp {
    int registers = 0;  ///< a thread
    int wanted = 0;     ///< 0: nothing
  };

  void grant(Block& block);

  std::vector<PerWarp> warps_;
  std::vector<Fiber*> waiters_;
  int free_ = 0;
};

}  // namespace gpu::host
