// The sm90_once kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_once.cu"
