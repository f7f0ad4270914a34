// Part 4 of the Stage C variants: lookup table, loads through registers.
#define FP8_SDPA_STAGE_C_INSTANCES 4
#include "stage_c/instances.cuh"
