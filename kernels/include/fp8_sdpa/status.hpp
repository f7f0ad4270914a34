// Status and Result: how this library reports what went wrong.
#pragma once

#include "gpu/types.hpp"  // IWYU pragma: export
