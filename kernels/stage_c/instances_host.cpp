// The Stage C kernels for the host executor: the very source that nvcc compiles.
#include "stage_c/instances.cu"
