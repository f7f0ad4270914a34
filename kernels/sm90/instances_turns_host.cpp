// The sm90_turns kernels for the host executor: the very source that nvcc compiles.
#include "sm90/instances_turns.cu"
