// tile_shapes.def as types, for templates, and as a table, for who chooses.
#pragma once

#include <iterator>
#include <string_view>

#include "sm90/config.hpp"

namespace fp8_sdpa::sm90 {

/// Of which weights a kernel's row sums are; named as in tile_shapes.def.
enum class Sums : bool { rounded, exact };

/// One type per kernel, named <variant>_d<head_dim>_<sums>: the name is in the kernel's mangled
/// symbol, where the compiler's resource report and the profiler show it.
namespace tag {
#define FP8_SDPA_SM90_TILE_SHAPE(VARIANT, HEAD_DIM, SUMS, ...) \
  struct VARIANT##_d##HEAD_DIM##_##SUMS {                      \
    static constexpr int kHeadDim = HEAD_DIM;                  \
    static constexpr Config kConfig = Config __VA_ARGS__;      \
  };
#include "sm90/tile_shapes.def"
#undef FP8_SDPA_SM90_TILE_SHAPE
}  // namespace tag

struct TileShape {
  std::string_view variant;
  std::string_view kernel;  ///< the tag's name
  int head_dim;
  Sums sums;
  Config config;
};

inline constexpr TileShape kTileShapes[] = {
#define FP8_SDPA_SM90_TILE_SHAPE(VARIANT, HEAD_DIM, SUMS, ...) \
  {#VARIANT, #VARIANT "_d" #HEAD_DIM "_" #SUMS, HEAD_DIM, Sums::SUMS, Config __VA_ARGS__},
#include "sm90/tile_shapes.def"
#undef FP8_SDPA_SM90_TILE_SHAPE
};

/// The variant's kernel for a head dim, of exact row sums or of any, as its index in kTileShapes;
/// -1 where there is none.
constexpr int find_tile_shape(std::string_view variant, int head_dim, bool exact) {
  int found = -1;
  for (int i = 0; i < static_cast<int>(std::size(kTileShapes)); ++i) {
    const TileShape& shape = kTileShapes[i];
    if (shape.variant != variant || shape.head_dim != head_dim) continue;
    if (shape.sums == Sums::rounded && exact) continue;
    if (found < 0 || shape.sums == Sums::rounded) found = i;
  }
  return found;
}

}  // namespace fp8_sdpa::sm90
