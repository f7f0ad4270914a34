# Run by ctest when it starts (TEST_INCLUDE_FILES): one test per planted bug that the binary lists for
# this sanitizer, and one that fails if it lists none.
#
# SDPA_RACES, SDPA_RACES_SANITIZER (address or thread), SDPA_RACES_REPORT (what a report begins with)
# and SDPA_RACES_TIMEOUT are set by the file that includes this.
cmake_minimum_required(VERSION 3.25)

function(add_race_test name report)
  add_test(races/${name} ${SDPA_RACES} ${ARGN})
  set_tests_properties(
    races/${name} PROPERTIES LABELS "model;sanitizer" TIMEOUT ${SDPA_RACES_TIMEOUT}
                             PASS_REGULAR_EXPRESSION "${report}")
endfunction()

add_race_test(list "[a-z]" --list ${SDPA_RACES_SANITIZER})
if(EXISTS ${SDPA_RACES})
  execute_process(COMMAND ${SDPA_RACES} --list ${SDPA_RACES_SANITIZER} OUTPUT_VARIABLE listing
                  ERROR_QUIET)
  string(REGEX MATCHALL "[^ \r\n]+" names "${listing}")
  foreach(name IN LISTS names)
    add_race_test(${name} "${SDPA_RACES_REPORT}" ${name})
  endforeach()
endif()
