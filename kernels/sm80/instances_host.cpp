// The sm80 kernels for the host executor: the very source that nvcc compiles.
#include "sm80/instances.cu"
