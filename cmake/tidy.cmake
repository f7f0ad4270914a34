# `tidy`: clang-tidy over the host code of this build. Not part of a build or of the tests.
find_program(SDPA_CLANG_TIDY NAMES clang-tidy-14 clang-tidy)
if(SDPA_CLANG_TIDY)
  file(
    GLOB_RECURSE tidy_sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/benchmarks/*.cpp ${PROJECT_SOURCE_DIR}/kernels/*.cpp
    ${PROJECT_SOURCE_DIR}/reference/*.cpp)
  # Kernels instantiated for the host executor lean on std::source_location, which clang 14 lacks.
  list(FILTER tidy_sources EXCLUDE REGEX "_host\\.cpp$")
  add_custom_target(
    tidy
    COMMAND ${SDPA_CLANG_TIDY} -p ${PROJECT_BINARY_DIR} --quiet ${tidy_sources}
    COMMENT "clang-tidy"
    VERBATIM)
endif()
