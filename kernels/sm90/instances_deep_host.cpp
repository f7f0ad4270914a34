// The sm90_deep kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_deep.cu"
