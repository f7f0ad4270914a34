// Part 5 of the Stage C variants for the host executor: the very source that nvcc compiles.
#include "stage_c/instances_lut_cp_async.cu"
