// The sm90_split2 kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_split2.cu"
