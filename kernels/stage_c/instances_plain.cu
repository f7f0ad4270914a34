// Part 1 of the Stage C variants: direct conversion, loads through registers.
#define FP8_SDPA_STAGE_C_INSTANCES 1
#include "stage_c/instances.cuh"
