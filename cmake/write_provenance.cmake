# cmake -P script: fills TEMPLATE into HEADER, which is touched only when its text changes.
# "unknown" stands for what git cannot tell: no git, or no repository.
cmake_minimum_required(VERSION 3.25)
function(git out)
  execute_process(
    COMMAND git -C ${SOURCE_DIR} ${ARGN}
    OUTPUT_VARIABLE text
    RESULT_VARIABLE failed
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    set(text unknown)
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

git(top rev-parse --show-toplevel)
get_filename_component(top "${top}" REALPATH)
get_filename_component(source "${SOURCE_DIR}" REALPATH)
set(GIT_SHA unknown)
set(GIT_BRANCH unknown)
set(GIT_DIRTY false)
# A tarball unpacked inside somebody else's repository must not claim that repository's commit.
if(top STREQUAL source)
  git(GIT_SHA rev-parse --verify HEAD)
  git(GIT_BRANCH rev-parse --abbrev-ref --verify HEAD)
  git(changes status --porcelain)
  if(NOT changes STREQUAL "")
    set(GIT_DIRTY true)
  endif()
endif()

execute_process(COMMAND ${SOURCE_STATE_TOOL} ${SOURCE_DIR} OUTPUT_VARIABLE SOURCE_STATE
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

foreach(text CXX_COMPILER CUDA_COMPILER CXX_FLAGS CUDA_FLAGS)
  string(REGEX REPLACE "([\\\\\"])" "\\\\\\1" ${text} "${${text}}")
endforeach()
configure_file(${TEMPLATE} ${HEADER} @ONLY)
