// The sm90_serial kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_serial.cu"
