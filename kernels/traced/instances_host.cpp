// The logged kernels for the host executor: the very source that nvcc compiles.
#include "traced/instances.cu"
