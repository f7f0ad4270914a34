// Part 3 of the Stage C variants: direct conversion, cp.async by a producer warp.
#define FP8_SDPA_STAGE_C_INSTANCES 3
#include "stage_c/instances.cuh"
