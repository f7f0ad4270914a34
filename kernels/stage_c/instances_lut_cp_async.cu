// Part 5 of the Stage C variants: lookup table, cp.async.
#define FP8_SDPA_STAGE_C_INSTANCES 5
#include "stage_c/instances.cuh"
