// The sm90_split2_ones kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_split2_ones.cu"
