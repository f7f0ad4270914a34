// The fp32 reference kernel for the host executor: the very source that nvcc compiles.
#include "reference/oracle/fp32_reference.cu"
