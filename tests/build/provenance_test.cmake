# cmake -P script: cmake/write_provenance.cmake outside a repository, in one, in one with
# changes; the header is touched only when its text changes.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR}/tree)
set(header ${WORK_DIR}/provenance.hpp)

function(write_header)
  execute_process(
    COMMAND
      ${CMAKE_COMMAND} -D SOURCE_DIR=${WORK_DIR}/tree -D HEADER=${header} -D
      TEMPLATE=${SOURCE_DIR}/cmake/provenance.hpp.in -D "CXX_COMPILER=GNU 12" -D
      CUDA_COMPILER=none -D "CXX_FLAGS=-DNAME=\"x\"" -D CUDA_FLAGS= -D "CUDA_ARCHS=80-real;89-real"
      -D BUILD_TYPE=Release -D SANITIZER=none -D "SOURCE_STATE_TOOL=${CMAKE_COMMAND};-E;echo;0123" -P ${SOURCE_DIR}/cmake/write_provenance.cmake
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(expect text)
  file(READ ${header} content)
  string(FIND "${content}" "${text}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "'${text}' is not in the header:\n${content}")
  endif()
endfunction()

# A git that finds the project's own repository around the build tree must not be believed.
write_header()
expect("kGitSha[] = \"unknown\"")
expect("kGitBranch[] = \"unknown\"")
expect("kGitDirty = false")
expect("kSourceState[] = \"0123 ${WORK_DIR}/tree\"")
expect("kFlags[] = \"-DNAME=\\\"x\\\"\"")
expect("kCudaArchs[] = \"80-real;89-real\"")

file(TIMESTAMP ${header} before "%s")
execute_process(COMMAND ${CMAKE_COMMAND} -E sleep 1.1)
write_header()
file(TIMESTAMP ${header} after "%s")
if(NOT before STREQUAL after)
  message(SEND_ERROR "the header was rewritten though nothing had changed")
endif()

find_program(GIT git)
if(GIT)
  file(WRITE ${WORK_DIR}/tree/file "text")
  foreach(command "init;--quiet;--initial-branch=trunk" "add;file"
                  "-c;user.name=Test;-c;user.email=test@example.com;commit;--quiet;-m;First")
    execute_process(COMMAND ${GIT} -C ${WORK_DIR}/tree ${command} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  execute_process(COMMAND ${GIT} -C ${WORK_DIR}/tree rev-parse HEAD OUTPUT_VARIABLE sha
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  write_header()
  expect("kGitSha[] = \"${sha}\"")
  expect("kGitBranch[] = \"trunk\"")
  expect("kGitDirty = false")
  file(WRITE ${WORK_DIR}/tree/file "other text")
  write_header()
  expect("kGitDirty = true")
endif()
