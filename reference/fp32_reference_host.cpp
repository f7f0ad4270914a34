// The fp32 reference kernel for the host executor: the very source that nvcc compiles.
#include "reference/fp32_reference.cu"
