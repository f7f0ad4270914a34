#include "gpu/host/executor/block.hpp"

#include <atomic>
#include <cstring>
#include <exception>

#include "gpu/host/executor/earlier_kernels.hpp"
#include "gpu/host/executor/report.hpp"
#include "gpu/host/executor/sanitizers.hpp"
#include "gpu/host/executor/units.hpp"

namespace gpu::host {

thread_local constinit const Lane* current_lane = nullptr;

namespace {

/// Spreads block indices over the seeds of the random choices.
constexpr std::uint64_t kBlockStride = 0x9E3779B97F4A7C15U;
/// Of so many suspensions in a random order, one lets a TMA load land.
constexpr std::uint32_t kLandingOdds = 16;

/// Never inlined: a compiler may keep the address of a thread-local variable across a switch, and a
/// pooled fiber may find itself on another OS thread in the next launch.
[[gnu::noinline]] void set_current_lane(const Lane* lane) { current_lane = lane; }

template <class Word>
std::uint64_t load_relaxed(const void* address) {
  auto& word = *static_cast<Word*>(const_cast<void*>(address));
  return std::atomic_ref<Word>(word).load(std::memory_order_relaxed);
}
/// The thread that waits orders itself after the write, by a load of its own.
bool is_there(const AwaitedWord& word) {
  const std::uint64_t value = word.bytes == sizeof(std::uint64_t)
                                  ? load_relaxed<std::uint64_t>(word.address)
                                  : load_relaxed<std::uint32_t>(word.address);
  return (value == word.value) != word.other;
}

}  // namespace

bool Operation::operator==(const Operation& other) const {
  return loc.line() == other.loc.line() && loc.column() == other.loc.column() &&
         barrier == other.barrier && threads == other.threads &&
         (name == other.name ||
          (name != nullptr && other.name != nullptr && std::strcmp(name, other.name) == 0)) &&
         (loc.file_name() == other.loc.file_name() ||
          std::strcmp(loc.file_name(), other.loc.file_name()) == 0);
}

bool Operation::is_instruction_of(const Operation& other) const {
  return *this == other && (loc.function_name() == other.loc.function_name() ||
                            std::strcmp(loc.function_name(), other.loc.function_name()) == 0);
}

Fiber::Fiber(int index, Block& owner) : block(owner), stack(index) {
  tsan_fiber = tsan::create_fiber();
}

Fiber::~Fiber() { tsan::destroy_fiber(tsan_fiber); }

Block::Block() : async_(make_async_units()) {}

Block::~Block() = default;

void Block::start(const Launch& launch, const fp8_sdpa::ExecutorOptions& options, uint3 index,
                  EarlierKernels& earlier, GlobalStores& global_stores) {
  launch_ = launch;
  options_ = options;
  earlier_ = &earlier;
  global_stores_ = &global_stores;
  has_waited_ = false;
  waiting_for_earlier_.clear();
  waiting_for_words_.clear();
  prepare(index);
}

bool Block::resume() {
  Fiber* first = error_.empty() ? ready_.pop() : nullptr;
  if (first == nullptr && error_.empty()) first = take_told();
  if (first == nullptr) return false;
  set_current_lane(first);
  switch_context(os_thread_, *first);
  return true;
}

std::string Block::end() {
  if (!failed() && live_ > 0) {
    error_ = "deadlock: " + describe(fibers_, launch_.threads) + describe_waits(*async_);
  }
  if (failed()) {
    join();
    cancel();
  }
  finish();
  return failed() ? describe_block(fibers_.front()->block_idx) + ": " + error_ : "";
}

void Block::prepare(uint3 index) {
  const std::uint64_t linear =
      index.x + launch_.grid.x * (index.y + std::uint64_t{launch_.grid.y} * index.z);
  random_ = Random(options_.seed + linear * kBlockStride);
  error_.clear();
  cancelled_ = false;
  live_ = launch_.threads;
  shared_.reset(launch_.shared_bytes, launch_.shared_alignment, options_.poison_shared_memory);
  while (static_cast<int>(fibers_.size()) < launch_.threads) {
    fibers_.push_back(std::make_unique<Fiber>(static_cast<int>(fibers_.size()), *this));
    make_fiber(*fibers_.back(), fibers_.back()->stack, fiber_main);
  }
  warps_.assign(static_cast<std::size_t>(launch_.threads / kLanesPerWarp), {});
  barriers_ = {};
  ready_.reset(options_.schedule, launch_.threads, random_);
  loads_in_flight_ = 0;
  os_thread_.tsan_fiber = tsan::current_fiber();

  std::array<std::array<std::uint8_t, kLanesPerWarp>, kWmmaOperands> chunks;
  for (auto& of_lane : chunks) {
    for (int lane = 0; lane < kLanesPerWarp; ++lane) of_lane[lane] = lane;
    random_.shuffle(std::span<std::uint8_t>(of_lane));
  }
  reset_units(*async_, launch_, static_cast<int>(random_.below(kLanesPerWarp)));
  tsan::release(&start_token_);
  for (int t = 0; t < launch_.threads; ++t) {
    Fiber& fiber = *fibers_[t];
    prepare_thread(fiber, t, index);
    for (int operand = 0; operand < kWmmaOperands; ++operand) {
      fiber.wmma_chunk[operand] = chunks[operand][fiber.lane];
    }
    warps_[fiber.warp].fibers[fiber.lane] = &fiber;
    ready_.push(&fiber);
  }
}

void Block::prepare_thread(Fiber& fiber, int thread, uint3 index) {
  fiber.thread = thread;
  fiber.lane = thread % kLanesPerWarp;
  fiber.warp = thread / kLanesPerWarp;
  fiber.block_idx = index;
  fiber.grid_dim = launch_.grid;
  fiber.at = {};
  fiber.exited = false;
  fiber.copies.reset();
  fiber.unfenced.clear();
  fiber.has_acquired = false;
  if constexpr (kTsan) {
    const std::string name = describe_block(index) + " " + describe(fiber);
    tsan::set_name(fiber.tsan_fiber, name.c_str());
  }
}

void Block::finish() {
  set_current_lane(nullptr);
  if (error_.empty()) error_ = unfinished(*async_);
  if (error_.empty() && launch_.uses_pdl && !has_waited_) {
    error_ = "the block ended and never waited for earlier kernels";
  }
  if (const std::size_t bytes = shared_.overrun(); error_.empty() && bytes > 0) {
    error_ = "the block wrote " + std::to_string(bytes) + " bytes past the end of its " +
             std::to_string(shared_.size()) + " bytes of shared memory";
  }
}

void Block::join() { tsan::acquire(&end_token_); }

void Block::cancel() {
  cancelled_ = true;
  for (int t = 0; t < launch_.threads; ++t) {
    Fiber& fiber = *fibers_[t];
    // Once is enough, unless the kernel catches what it does not know.
    while (!fiber.exited) {
      set_current_lane(&fiber);
      switch_context(os_thread_, fiber);
    }
    fiber.copies.reset();
  }
}

void Block::fiber_main(Context& context) {
  auto& me = static_cast<Fiber&>(context);
  for (;;) {
    if (!me.block.cancelled_) me.block.run_thread(me);
    me.block.exit_thread(me);
  }
}

void Block::run_thread(Fiber& me) {
  tsan::acquire(&start_token_);
  try {
    launch_.entry(launch_.params, shared_.data());
    check_exit(me);
  } catch (const Cancelled&) {
    // Another thread's error is the one to report.
  } catch (const KernelError& error) {
    record(error.what());
  } catch (const std::exception& error) {
    record(describe(me) + " threw an exception after " + describe(me.at) + ": " + error.what());
  } catch (...) {
    record(describe(me) + " threw an exception after " + describe(me.at));
  }
  tsan::release(&end_token_);
}

void Block::record(const std::string& error) {
  // The string outlives the thread and is the OS thread's.
  const tsan::Quiet quiet;
  error_ = error;
}

void Block::check_exit(Fiber& me) {
  const tsan::Quiet quiet;
  if (const std::size_t copies = me.copies.in_flight(); copies > 0) {
    fail(me, me.at,
         "the thread exits with " + std::to_string(copies) +
             " cp.async copies in flight; wait for them");
  }
  check_wgmma_at_exit(me);
  Warp& warp = warps_[me.warp];
  if (warp.arrived != 0) {
    throw KernelError(describe(me) + " exits while " + describe_lanes(warp.arrived) +
                      " of its warp wait in " + describe(warp.at));
  }
  warp.exited |= 1U << me.lane;
  const Barrier& whole_block = barriers_[0];
  if (whole_block.waiting != 0 && whole_block.threads == launch_.threads) {
    throw KernelError(describe(me) + " exits while " + describe_warps(whole_block.waiting) +
                      " wait for the whole block in " + describe(whole_block.first));
  }
}

void Block::exit_thread(Fiber& me) {
  me.exited = true;
  --live_;
  leave(me);
}

void Block::land_loads() {
  const tsan::Quiet quiet;
  while (error_.empty() && loads_in_flight_ > 0) {
    const bool by_chance =
        options_.schedule == fp8_sdpa::Schedule::kRandom && random_.below(kLandingOdds) == 0;
    if (!ready_.empty() && !by_chance) return;
    const bool in_order = options_.schedule == fp8_sdpa::Schedule::kFifo;
    const auto count = static_cast<std::uint32_t>(loads_in_flight_);
    error_ = land_load(*this, in_order ? 0 : random_.below(count));
  }
}

void Block::leave(Fiber& me) {
  if (loads_in_flight_ > 0) land_loads();
  Fiber* next = error_.empty() ? ready_.pop() : nullptr;
  if (next == nullptr && error_.empty()) next = end_waits_for_earlier();
  if (next == &me) return;
  set_current_lane(next);
  switch_context(me, next != nullptr ? static_cast<Context&>(*next) : os_thread_);
}

Fiber* Block::end_waits_for_earlier() {
  const tsan::Quiet quiet;
  for (Fiber* fiber : waiting_for_earlier_) ready_.push(fiber);
  waiting_for_earlier_.clear();
  return ready_.pop();
}

Fiber* Block::take_told() {
  std::erase_if(waiting_for_words_, [this](const WordWait& wait) {
    const bool told = is_there(wait.word);
    if (told) ready_.push(wait.fiber);
    return told;
  });
  return ready_.pop();
}

void Block::wait(Fiber& me) {
  leave(me);
  if (cancelled_) throw Cancelled();
}

void Block::pdl_wait(Fiber& me) {
  has_waited_ = true;
  if (!earlier_->have_ended()) {
    {
      const tsan::Quiet quiet;
      waiting_for_earlier_.push_back(&me);
    }
    wait(me);
  }
  earlier_->wait();
}

void Block::wait_for_word(Fiber& me, const AwaitedWord& word) {
  {
    const tsan::Quiet quiet;
    waiting_for_words_.push_back({&me, word});
  }
  wait(me);
}

void Block::preempt(Fiber& me) {
  if (options_.schedule == fp8_sdpa::Schedule::kFifo) return;
  ready_.push(&me);
  wait(me);
}

}  // namespace gpu::host
