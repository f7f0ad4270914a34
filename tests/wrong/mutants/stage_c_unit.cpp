// The Stage C variants of include/stage_c/variants.def for the host executor, as one translation
// unit: what a trial of an edited Stage C kernel compiles.
#define FP8_SDPA_INSTANCE 0
#include "stage_c/instances.cuh"
