# Run by ctest each time it starts (TEST_INCLUDE_FILES): one test per wrong kernel that the
# catalogue makes of the kernels as they are at this moment, after a control (the unedited kernel
# must pass) and before the report (which fails if there is none, or one was not tried).
#
# SDPA_MUTANTS, SDPA_MUTANTS_LABELS and SDPA_MUTANTS_TIMEOUT are set by the file that includes this.
cmake_minimum_required(VERSION 3.25)

function(add_mutation_test name)
  add_test(mutation/${name} ${SDPA_MUTANTS} ${ARGN})
  set_tests_properties(mutation/${name} PROPERTIES LABELS "${SDPA_MUTANTS_LABELS}"
                                                   TIMEOUT ${SDPA_MUTANTS_TIMEOUT})
endfunction()

if(EXISTS ${SDPA_MUTANTS})
  execute_process(COMMAND ${SDPA_MUTANTS} list OUTPUT_VARIABLE listing ERROR_QUIET)
  string(REGEX MATCHALL "[A-Za-z0-9_]+" names "${listing}")
  add_mutation_test(control control)
  set_tests_properties(mutation/control PROPERTIES FIXTURES_SETUP mutation_control)
  set(tries "")
  foreach(name IN LISTS names)
    add_mutation_test(${name} try ${name})
    set_tests_properties(mutation/${name} PROPERTIES FIXTURES_REQUIRED mutation_control)
    list(APPEND tries mutation/${name})
  endforeach()
  add_mutation_test(report report)
  set_tests_properties(mutation/report PROPERTIES DEPENDS "${tries}")
endif()
