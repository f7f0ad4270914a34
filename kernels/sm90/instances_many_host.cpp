// The sm90_many kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_many.cu"
