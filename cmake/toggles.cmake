# The toggles of the ladder. The six USE_* pick the default variant (every legal combination is
# compiled anyway); DEBUG_PRINT is compiled into the kernels.
#
#   sdpa_toggle_definitions(<out>)   FP8_SDPA_DEFAULT_<toggle>=<0|1> of the six, and
#                                    FP8_SDPA_TOGGLES_CHOSEN=1 where someone chose them: one of them
#                                    was given when this folder was first configured, or is not what
#                                    this file sets
include_guard(GLOBAL)

set(SDPA_TOGGLES USE_KV_LUT USE_CP_ASYNC USE_VEC_PV USE_WMMA_PV USE_WARP_SPEC USE_XOR_SWIZZLE)

if(NOT DEFINED SDPA_TOGGLES_GIVEN)
  set(sdpa_toggles_given 0)
  foreach(toggle IN LISTS SDPA_TOGGLES)
    if(DEFINED ${toggle})
      set(sdpa_toggles_given 1)
    endif()
  endforeach()
  set(SDPA_TOGGLES_GIVEN ${sdpa_toggles_given} CACHE INTERNAL "A USE_* option was given")
endif()

# A misspelt toggle would be passed over, and the variant be another one than was asked for.
if(NOT DEFINED PROJECT_IS_TOP_LEVEL OR PROJECT_IS_TOP_LEVEL)
  get_cmake_property(sdpa_unknown_toggles CACHE_VARIABLES)
  list(FILTER sdpa_unknown_toggles INCLUDE REGEX "^[Uu][Ss][Ee]_")
  list(REMOVE_ITEM sdpa_unknown_toggles ${SDPA_TOGGLES})
  foreach(name IN LISTS sdpa_unknown_toggles)
    unset(${name} CACHE)  # else it would be there the next time as well
    message(FATAL_ERROR "${name}: no such toggle; there are ${SDPA_TOGGLES}")
  endforeach()
endif()

set(USE_KV_LUT 0 CACHE STRING "Dequantise K and V through a 256-entry lookup table")
set(USE_CP_ASYNC 1 CACHE STRING "Double-buffered cp.async for the K/V tiles")
set(USE_VEC_PV 0 CACHE STRING "Vectorised P V")
set(USE_WMMA_PV 0 CACHE STRING "Tensor-core P V")
set(USE_WARP_SPEC 0 CACHE STRING "Producer and consumer warps")
set(USE_XOR_SWIZZLE 0 CACHE STRING "XOR-swizzled shared memory")
set(DEBUG_PRINT 0 CACHE STRING "Print S, m, l and U of block 0's first rows after each tile")

# Reads a toggle as 0 or 1; anything but 0, 1, ON and OFF is refused.
function(sdpa_read_toggle name out)
  if("${${name}}" MATCHES "^(1|[Oo][Nn])$")
    set(${out} 1 PARENT_SCOPE)
  elseif("${${name}}" MATCHES "^(0|[Oo][Ff][Ff])$")
    set(${out} 0 PARENT_SCOPE)
  else()
    message(FATAL_ERROR "${name}=${${name}}: a toggle is 0, 1, ON or OFF")
  endif()
endfunction()

function(sdpa_toggle_definitions out)
  set(definitions "")
  set(values "")
  foreach(toggle IN LISTS SDPA_TOGGLES)
    sdpa_read_toggle(${toggle} value)
    list(APPEND definitions FP8_SDPA_DEFAULT_${toggle}=${value})
    string(APPEND values ${value})
  endforeach()
  set(chosen ${SDPA_TOGGLES_GIVEN})
  if(NOT values STREQUAL "010000")
    set(chosen 1)
  endif()
  list(APPEND definitions FP8_SDPA_TOGGLES_CHOSEN=${chosen})
  set(${out} ${definitions} PARENT_SCOPE)
endfunction()

sdpa_toggle_definitions(SDPA_DEFAULT_TOGGLE_DEFINITIONS)
sdpa_read_toggle(DEBUG_PRINT SDPA_DEBUG_PRINT)
