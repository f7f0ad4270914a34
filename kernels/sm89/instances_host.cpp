// The sm89 kernels for the host executor: the very source that nvcc compiles.
#include "sm89/instances.cu"
