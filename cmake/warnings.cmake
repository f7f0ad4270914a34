# Warnings: -Wall -Wextra everywhere, errors with SDPA_WERROR. Instrumented code makes GCC warn of
# things that are not there, so the sanitizer presets leave SDPA_WERROR off. The host compiler is
# not asked about nvcc's pragmas (#pragma unroll): kernels are one source for both.
#
#   sdpa_warnings(<target>)
include_guard(GLOBAL)

function(sdpa_warnings target)
  target_compile_options(
    ${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unknown-pragmas>
                      $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC bug 105651: warns about std::string's operator+ when it is inlined.
    target_compile_options(
      ${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
                        $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wno-restrict>)
  endif()
  if(SDPA_WERROR)
    target_compile_options(
      ${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                        $<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings -Xcompiler=-Werror>)
  endif()
endfunction()
