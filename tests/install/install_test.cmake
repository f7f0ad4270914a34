# cmake -P script: installs BUILD_DIR under WORK_DIR, checks what was installed, then configures,
# builds and runs the project in CONSUMER_DIR against it. The consumer knows nothing but the prefix.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK_DIR})
list(JOIN LINK_FLAGS " " link_flags)

execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

# Exactly the public headers and the one that they share with kernels/gpu: nothing else leaks out.
file(GLOB_RECURSE installed RELATIVE ${WORK_DIR}/prefix/include ${WORK_DIR}/prefix/include/*)
file(GLOB_RECURSE public RELATIVE ${HEADERS} ${HEADERS}/*)
list(APPEND public fp8_sdpa/gpu/types.hpp)
list(SORT public)
if(NOT installed STREQUAL public)
  message(FATAL_ERROR "installed headers: ${installed}\npublic headers: ${public}")
endif()

execute_process(
  COMMAND
    ${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${WORK_DIR}/build -G ${GENERATOR} -D
    CMAKE_PREFIX_PATH=${WORK_DIR}/prefix -D CMAKE_BUILD_TYPE=${BUILD_TYPE} -D
    CMAKE_CXX_COMPILER=${CXX_COMPILER} -D CMAKE_EXE_LINKER_FLAGS=${link_flags}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK_DIR}/build/consumer OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
# It runs a problem, and names the variant that the library took for it.
if(NOT said MATCHES "^planned (stage_c|sm80|sm89|sm90|decode)[a-z0-9_]* on host executor\n$")
  message(FATAL_ERROR "the consumer said:\n${said}")
endif()
