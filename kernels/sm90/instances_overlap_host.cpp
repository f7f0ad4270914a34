// The sm90_overlap kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_overlap.cu"
