// wgmma: issue, commit, wait. A multiply is computed when its warp issues it. The result is shown
// in d at the wait, or at once; that operands change meanwhile is found at the wait, where the
// device may have read them as late as that.
#include "gpu/host/tensor_core/wgmma.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "gpu/host/executor/block.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"
#include "gpu/host/memory/async_units.hpp"
#include "gpu/host/tensor_core/wgmma_unit.hpp"

namespace gpu::host {
namespace {

constexpr unsigned char kPoisonByte = 0xFF;
constexpr int kMaxRegisters = kWgmmaMaxColumns / 2;

/// One lane's part in a multiply.
struct Issue {
  WgmmaOperands operands;
  void* caller;
};

const WgmmaOperands& operands_of(const Warp& warp, int lane) {
  return static_cast<const Issue*>(warp.arguments[lane])->operands;
}

/// Whether two lanes or warps are at the same multiply, registers apart.
bool same_multiply(const WgmmaOperands& x, const WgmmaOperands& y) {
  return x.n == y.n && (x.a == nullptr) == (y.a == nullptr) && x.a_descriptor == y.a_descriptor &&
         x.b_descriptor == y.b_descriptor && x.accumulate == y.accumulate && x.a_type == y.a_type &&
         x.b_type == y.b_type;
}

/// Where lane `lane`'s register i of d is in (16, n).
std::size_t position(int lane, int i, int n) {
  const int row = lane / 4 + 8 * (i / 2 % 2);
  return static_cast<std::size_t>(row) * n + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
}

/// What the executor has left in a lane's registers of d.
void left_in(const Accumulator& d, int lane, bool late, float (&registers)[kMaxRegisters]) {
  if (late && d.in_flight > 0) {
    std::memset(registers, kPoisonByte, sizeof registers);
    return;
  }
  for (int i = 0; i < d.n / 2; ++i) registers[i] = d.values[position(lane, i, d.n)];
}

void leave_in_registers(const Accumulator& d, bool late) {
  float registers[kMaxRegisters];
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    left_in(d, lane, late, registers);
    std::memcpy(d.registers[lane], registers, d.n / 2 * sizeof(float));
  }
}

/// Whether the kernel has written d since.
bool written(const Accumulator& d, bool late) {
  float registers[kMaxRegisters];
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    left_in(d, lane, late, registers);
    if (std::memcmp(d.registers[lane], registers, d.n / 2 * sizeof(float)) != 0) return true;
  }
  return false;
}

/// Takes over what the kernel has in d. It may be the memory of variables that are gone.
void load(Accumulator& d) {
  float registers[kMaxRegisters];
  for (int lane = 0; lane < kLanesPerWarp; ++lane) {
    raw_copy(registers, d.registers[lane], d.n / 2 * sizeof(float));
    for (int i = 0; i < d.n / 2; ++i) d.values[position(lane, i, d.n)] = registers[i];
  }
}

/// One warp's issue of a multiply.
class Issuer {
 public:
  explicit Issuer(Warp& warp)
      : warp_(warp),
        me_(current_fiber()),
        block_(me_.block),
        state_(block_.async().wgmma->warp(me_.warp)),
        operands_(operands_of(warp, 0)),
        late_(block_.lands_late()) {}

  void run() {
    check();
    Multiply multiply;
    multiply.loc = me_.at.loc;
    DecodedA a;
    read_a(multiply, a);
    multiply.b = matrix_b();
    multiply.d = &accumulator();
    announce(multiply);
    Accumulator& d = *multiply.d;
    wgmma_multiply(a, multiply.b->decoded, operands_.accumulate, block_.options().tensor_core_sums,
                   d.values.data());
    ++d.in_flight;
    leave_in_registers(d, late_);
    state_.open.push_back(std::move(multiply));
  }

 private:
  void check() const {
    for (int lane = 1; lane < kLanesPerWarp; ++lane) {
      if (!same_multiply(operands_, operands_of(warp_, lane))) {
        fail(me_, me_.at, "lanes 0 and " + std::to_string(lane) + " pass different operands");
      }
    }
    const auto end = (me_.warp / kWarpsPerWarpgroup + 1) * kWarpsPerWarpgroup;
    if (static_cast<std::size_t>(end) > block_.warps().size()) {
      fail(me_, me_.at, "the warp is in no whole warpgroup");
    }
    if (state_.fences == 0) fail(me_, me_.at, "no wgmma_fence before the first multiply");
  }

  void read_a(Multiply& multiply, DecodedA& a) {
    if (operands_.a == nullptr) {
      const int first = me_.warp % kWarpsPerWarpgroup * kWgmmaRows;
      multiply.a = read_rows(block_, me_, operands_.a_descriptor, first, kWgmmaRows, "A");
      a.decode(multiply.a.bytes.data(), operands_.a_type);
      return;
    }
    Chunk rows[kWgmmaRows * kChunksPerRow];
    auto* bytes = reinterpret_cast<unsigned char*>(rows);
    for (int lane = 0; lane < kLanesPerWarp; ++lane) {
      const std::uint32_t* words = operands_of(warp_, lane).a;
      multiply.a_registers[lane] = words;
      std::memcpy(&multiply.a_words[lane], words, sizeof(Chunk));
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + 8 * (i % 2);
        const int k = 16 * (i / 2) + 4 * (lane % 4);
        std::memcpy(bytes + row * kWgmmaStepBytes + k, words + i, sizeof *words);
      }
    }
    a.decode(rows, operands_.a_type);
    check_fence_of_a(multiply);
  }

  /// A's registers must not have changed since the last wgmma_fence. That can be told of registers
  /// that were in use before it.
  void check_fence_of_a(const Multiply& multiply) {
    const auto used = std::find_if(state_.used.begin(), state_.used.end(), [&](const auto& other) {
      return other.registers == multiply.a_registers;
    });
    if (used == state_.used.end()) {
      state_.used.push_back({multiply.a_registers, multiply.a_words});
    } else if (used->words != multiply.a_words) {
      fail(me_, me_.at, "the registers of A were written with no wgmma_fence after that");
    }
  }

  /// B, read once for the whole warpgroup; and that its warps issue the same multiplies.
  std::shared_ptr<const MatrixB> matrix_b() {
    WarpgroupLog& log = block_.async().wgmma->log(me_.warp);
    const int mine = me_.warp % kWarpsPerWarpgroup;
    const std::uint64_t index = log.next[mine]++ - log.first;
    if (index == log.multiplies.size()) {
      auto b = std::make_shared<MatrixB>();
      if (is_16_bit(operands_.b_type)) {
        b->rows = read_n_major(block_, me_, operands_.b_descriptor, operands_.n);
        b->decoded.decode_n_major(b->rows.bytes.data(), operands_.n, operands_.b_type);
      } else {
        b->rows = read_rows(block_, me_, operands_.b_descriptor, 0, operands_.n, "B");
        b->decoded.decode(b->rows.bytes.data(), operands_.n, operands_.b_type);
      }
      log.multiplies.push_back({operands_, me_.at.loc, std::move(b)});
      return log.multiplies.back().b;
    }
    const WarpgroupMultiply& first = log.multiplies[index];
    if (!same_multiply(first.operands, operands_) || first.loc.line() != me_.at.loc.line()) {
      fail(me_, me_.at,
           "another warp of the warpgroup issued another multiply, at " + describe(first.loc));
    }
    std::shared_ptr<const MatrixB> b = first.b;
    if (!unchanged(block_, b->rows)) fail_changed("matrix B", me_.at.loc);
    if (std::all_of(log.next.begin(), log.next.end(),
                    [&](std::uint64_t next) { return next > log.first; })) {
      log.multiplies.pop_front();
      ++log.first;
    }
    return b;
  }

  Accumulator& accumulator() {
    std::array<float*, kLanesPerWarp> registers{};
    for (int lane = 0; lane < kLanesPerWarp; ++lane) registers[lane] = operands_of(warp_, lane).d;
    auto& all = state_.accumulators;
    for (const auto& d : all) {
      if (d->registers != registers || d->n != operands_.n) continue;
      check_known(*d);
      return *d;
    }
    // Other registers than before, or the memory of variables that are gone.
    std::erase_if(all, [&](const auto& d) {
      const bool apart = d->registers[0] + d->n / 2 <= registers[0] ||
                         registers[0] + operands_.n / 2 <= d->registers[0];
      if (!apart && d->in_flight > 0) {
        fail(me_, me_.at, "d overlaps the d, of another shape, of a multiply in flight");
      }
      return !apart;
    });
    auto d = std::make_unique<Accumulator>();
    d->registers = registers;
    d->n = operands_.n;
    d->values.resize(static_cast<std::size_t>(kWgmmaRows) * d->n);
    load(*d);
    all.push_back(std::move(d));
    return *all.back();
  }

  /// A d that multiplies have been into.
  void check_known(const Accumulator& d) {
    const bool touched = written(d, late_);
    if (d.in_flight > 0) {
      if (touched) fail(me_, me_.at, "d was written while a multiply into it was in flight");
    } else if (touched || (!operands_.accumulate && d.fences == state_.fences)) {
      // What was in d is not wanted any more: the kernel has read it.
      fail(me_, me_.at, "d has been touched since the last wait, with no wgmma_fence after that");
    }
  }

  /// Tells ThreadSanitizer what the tensor core reads.
  void announce(const Multiply& multiply) {
    if constexpr (kTsan) {
      const char* shared = block_.shared().data();
      void* caller = static_cast<const Issue*>(warp_.arguments[0])->caller;
      state_.engine.play(
          me_.tsan_fiber,
          [&] {
            const tsan::Frame frame(caller);
            for (const std::size_t at : multiply.a.offsets) tsan::read(shared + at, kChunkBytes);
            for (const std::size_t at : multiply.b->rows.offsets) {
              tsan::read(shared + at, kChunkBytes);
            }
          },
          &state_.tokens[state_.committed % WgmmaWarp::kTokens], block_.end_token());
    }
  }

  [[noreturn]] void fail_changed(const char* what, Location issued) const {
    fail(me_, me_.at,
         std::string(what) + " of the multiply issued at " + describe(issued) +
             " was written before the wait that covers it");
  }

  Warp& warp_;
  Fiber& me_;
  Block& block_;
  WgmmaWarp& state_;
  const WgmmaOperands& operands_;
  const bool late_;
};

void issue(Warp& warp) { Issuer(warp).run(); }

void commit(Warp& warp) {
  Fiber& me = *warp.fibers[0];
  WgmmaWarp& state = me.block.async().wgmma->warp(me.warp);
  state.groups.push_back(std::move(state.open));
  state.open.clear();
  ++state.committed;
}

/// Ends one multiply at a wait.
void land(Fiber& me, WgmmaWarp& state, const Multiply& multiply) {
  Block& block = me.block;
  const auto check = [&](bool intact, const char* what) {
    if (intact) return;
    fail(me, me.at,
         std::string(what) + " of the multiply issued at " + describe(multiply.loc) +
             " was written before the wait that covers it");
  };
  check(unchanged(block, multiply.b->rows), "matrix B");
  check(unchanged(block, multiply.a), "matrix A");
  for (int lane = 0; lane < kLanesPerWarp && multiply.a_registers[lane] != nullptr; ++lane) {
    check(std::memcmp(multiply.a_registers[lane], &multiply.a_words[lane], sizeof(Chunk)) == 0,
          "a register of A");
  }
  Accumulator& d = *multiply.d;
  check(!written(d, block.lands_late()), "d");
  if (--d.in_flight > 0) return;
  d.fences = state.fences;
  leave_in_registers(d, block.lands_late());
}

void wait(Warp& warp) {
  Fiber& me = current_fiber();
  WgmmaWarp& state = me.block.async().wgmma->warp(me.warp);
  const int groups_in_flight = *static_cast<const int*>(warp.arguments[0]);
  state.landed_before = state.landed;
  while (static_cast<int>(state.groups.size()) > groups_in_flight) {
    for (const Multiply& multiply : state.groups.front()) land(me, state, multiply);
    state.groups.pop_front();
    ++state.landed;
  }
}

void fence(Warp& warp) {
  Fiber& me = *warp.fibers[0];
  WgmmaWarp& state = me.block.async().wgmma->warp(me.warp);
  ++state.fences;
  // What registers hold now, multiplies may find in them.
  for (const auto& d : state.accumulators) {
    if (d->in_flight == 0) load(*d);
  }
  for (UsedRegisters& a : state.used) {
    for (int lane = 0; lane < kLanesPerWarp; ++lane) {
      raw_copy(&a.words[lane], a.registers[lane], sizeof(Chunk));
    }
  }
}

}  // namespace

void WgmmaWarp::reset() {
  accumulators.clear();
  used.clear();
  open.clear();
  groups.clear();
  fences = committed = landed = landed_before = 0;
}

void WgmmaUnit::reset(int threads) {
  const auto count = static_cast<std::size_t>(threads / kLanesPerWarp);
  while (warps_.size() < count) warps_.push_back(std::make_unique<WgmmaWarp>());
  for (auto& warp : warps_) warp->reset();
  logs_.assign((count + kWarpsPerWarpgroup - 1) / kWarpsPerWarpgroup, {});
}

void WgmmaUnit::check_exit(const Fiber& me) const {
  const WgmmaWarp& warp = *warps_[me.warp];
  if (!warp.open.empty()) {
    fail(me, me.at,
         "the thread exits with the wgmma issued at " + describe(warp.open.front().loc) +
             " in flight and not committed");
  }
  for (const auto& group : warp.groups) {
    if (group.empty()) continue;
    fail(me, me.at,
         "the thread exits with the wgmma issued at " + describe(group.front().loc) +
             " in flight; wait for it");
  }
}

void wgmma(const WgmmaOperands& operands, Location loc) {
  Fiber& me = current_fiber();
  Issue mine{.operands = operands, .caller = __builtin_return_address(0)};
  const char* name = operands.a == nullptr ? "wgmma, A in shared memory" : "wgmma, A in registers";
  me.block.collective(me, {.name = name, .loc = loc}, issue, &mine);
}

void wgmma_fence(Location loc) {
  Fiber& me = current_fiber();
  me.block.collective(me, {.name = "wgmma_fence", .loc = loc}, fence, nullptr);
}

void wgmma_commit(Location loc) {
  Fiber& me = current_fiber();
  me.block.collective(me, {.name = "wgmma_commit", .loc = loc}, commit, nullptr);
}

void wgmma_wait(int groups_in_flight, Location loc) {
  Fiber& me = current_fiber();
  me.block.collective(me, {.name = "wgmma_wait", .loc = loc}, wait, &groups_in_flight);
  if constexpr (kTsan) {
    WgmmaWarp& state = me.block.async().wgmma->warp(me.warp);
    for (std::uint64_t group = state.landed_before; group < state.landed; ++group) {
      tsan::acquire(&state.tokens[group % WgmmaWarp::kTokens]);
    }
  }
}

}  // namespace gpu::host
