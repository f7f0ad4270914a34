// The sm90_cluster kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_cluster.cu"
