# cmake -P script: fails unless the gates binary lists gates; shows what it said where it does not.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${GATES} --gtest_list_tests OUTPUT_VARIABLE listing
                RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${GATES} --gtest_list_tests: exit status ${failed}")
endif()
string(REGEX MATCHALL "Passes/[^ \r\n]+" gates "${listing}")
list(LENGTH gates count)
if(count EQUAL 0)
  message(FATAL_ERROR "${GATES} lists no gate: the configuration has no shape, seed or variant "
                      "that a gate would run")
endif()
message("${count} gates")
