// Part 6 of the Stage C variants: lookup table, cp.async by a producer warp.
#define FP8_SDPA_STAGE_C_INSTANCES 6
#include "stage_c/instances.cuh"
