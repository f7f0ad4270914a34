# SDPA_QUICK_FLAGS: for code that runs for a moment or waits for a GPU (tests, tools), so that it is
# compiling it that costs. Sanitizer presets have levels of their own.
include_guard(GLOBAL)

set(SDPA_QUICK_FLAGS "")
if(SDPA_SANITIZER STREQUAL "none")
  set(SDPA_QUICK_FLAGS -O1)
endif()
