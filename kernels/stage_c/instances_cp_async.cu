// Part 2 of the Stage C variants: direct conversion, cp.async.
#define FP8_SDPA_STAGE_C_INSTANCES 2
#include "stage_c/instances.cuh"
