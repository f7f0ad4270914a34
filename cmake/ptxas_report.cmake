# What ptxas said about every kernel, as ${PROJECT_BINARY_DIR}/ptxas_report.json.
#
# A compiler launcher keeps the -Xptxas=-v lines of each object beside it; a tool turns them into
#   [{"kernel": mangled, "variant": name or "", "arch": "sm_90a", "registers": n,
#     "static_smem_bytes": n, "spill_stores": bytes, "spill_loads": bytes}, ...]
#
#   sdpa_capture_ptxas(<target>)         keep the lines of this target's CUDA objects
#   sdpa_add_ptxas_report(<target>...)   write the report over these OBJECT libraries
#   SDPA_PTXAS_REPORT                    its path
include_guard(GLOBAL)

set(SDPA_PTXAS_REPORT ${PROJECT_BINARY_DIR}/ptxas_report.json)

add_library(ptxas_report_reader STATIC EXCLUDE_FROM_ALL
            ${PROJECT_SOURCE_DIR}/cmake/tools/ptxas_report.cpp)
target_compile_features(ptxas_report_reader PUBLIC cxx_std_20)
target_include_directories(ptxas_report_reader PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_options(ptxas_report_reader PRIVATE ${SDPA_QUICK_FLAGS})
sdpa_warnings(ptxas_report_reader)
sdpa_sanitize(ptxas_report_reader)

if(SDPA_HAS_DEVICE)
  add_executable(ptxas_report ${PROJECT_SOURCE_DIR}/cmake/tools/ptxas_report_main.cpp)
  target_link_libraries(ptxas_report PRIVATE ptxas_report_reader)
  sdpa_warnings(ptxas_report)
endif()

function(sdpa_capture_ptxas target)
  set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER
                                             ${PROJECT_SOURCE_DIR}/cmake/tools/ptxas_capture.sh)
endfunction()

function(sdpa_add_ptxas_report)
  set(objects "")
  foreach(target IN LISTS ARGN)
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endforeach()
  add_custom_command(
    OUTPUT ${SDPA_PTXAS_REPORT}
    COMMAND ptxas_report --out ${SDPA_PTXAS_REPORT} "${objects}"
    DEPENDS ptxas_report ${objects}
    COMMENT "Writing ptxas_report.json"
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(fp8_sdpa_ptxas_report ALL DEPENDS ${SDPA_PTXAS_REPORT})
endfunction()
