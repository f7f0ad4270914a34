// The sm90_pingpong kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_pingpong.cu"
