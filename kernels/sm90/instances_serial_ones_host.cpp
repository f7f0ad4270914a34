// The sm90_serial_ones kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_serial_ones.cu"
