// The sm90_split kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_split.cu"
