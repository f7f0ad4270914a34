# The translation units that instantiate kernels, written into the build folder: for each a file for nvcc
# and one for the host compiler, both of a few lines that include the family's instances.cuh.
#
#   sdpa_instances(<family> <id>...)   writes <family>_<id>.cu and <family>_<id>_host.cpp, appends them to
#                                      <family>_device_sources and host_kernel_sources
#
# FP8_SDPA_INSTANCE tells the text which one it is.
include_guard(GLOBAL)

set(SDPA_INSTANCES_DIR ${PROJECT_BINARY_DIR}/kernels/instances)

# Touches only what differs, so that a new configuration compiles nothing again.
function(sdpa_write_if_changed path text)
  set(before "")
  if(EXISTS ${path})
    file(READ ${path} before)
  endif()
  if(NOT before STREQUAL text)
    file(WRITE ${path} "${text}")
  endif()
endfunction()

function(sdpa_instances family)
  set(names "")
  foreach(id IN LISTS ARGN)
    # The kernels of exact and of rounded row sums are one file: they share the time that headers take.
    string(REGEX REPLACE "^${family}_|_(exact|rounded)$" "" name ${id})
    list(APPEND names ${name})
    string(APPEND text_of_${name} "#undef FP8_SDPA_INSTANCE\n#define FP8_SDPA_INSTANCE ${id}\n"
                                  "#include \"${family}/instances.cuh\"\n")
  endforeach()
  list(REMOVE_DUPLICATES names)
  foreach(name IN LISTS names)
    set(stem ${SDPA_INSTANCES_DIR}/${family}_${name})
    sdpa_write_if_changed(${stem}.cu "${text_of_${name}}")
    sdpa_write_if_changed(${stem}_host.cpp "${text_of_${name}}")
    list(APPEND ${family}_device_sources ${stem}.cu)
    list(APPEND host_kernel_sources ${stem}_host.cpp)
  endforeach()
  set(${family}_device_sources ${${family}_device_sources} PARENT_SCOPE)
  set(host_kernel_sources ${host_kernel_sources} PARENT_SCOPE)
endfunction()

# The rows of a table that match a regular expression, each as REPLACEMENT says. The table is a
# dependency of the configuration.
function(sdpa_rows result table expression replacement)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
  file(STRINGS ${table} lines REGEX "${expression}")
  set(rows "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^.*${expression}.*$" "${replacement}" row "${line}")
    list(APPEND rows ${row})
  endforeach()
  set(${result} ${rows} PARENT_SCOPE)
endfunction()
