// The sm90_prepared kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_prepared.cu"
