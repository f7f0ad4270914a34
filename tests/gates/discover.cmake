# Run by ctest each time it starts (TEST_INCLUDE_FILES): asks the gates binary what it would run
# with the configuration of this moment. On the host it adds one test per (shape, seed, family), which
# covers the family's variants, and one per (other test, family); on the device one per
# shape and one per suite. A shape added to the configuration is tested with no rebuild.
#
# A process computes the references of a problem once: with a process per variant, references and
# budgets would take longer than the kernels. One variant alone:
#   build/dev/tests/gates/gates --gtest_filter='*host*_VARIANT:*/VARIANT'
#
# SDPA_GATES, SDPA_GATES_LABELS, SDPA_GATES_TIMEOUT and SDPA_GATES_SANITIZER are set by the file that
# includes this one.
#
# A sanitizer build has no device code and sees nothing in tests of values alone: those are left out.
#
# A test is "skipped" only when all of its cases were: one that also passed or failed something is
# what that something was.
cmake_minimum_required(VERSION 3.25)
set(all_skipped
    "\\[  PASSED  \\] 0 tests\\.[\r\n]+(\\[  SKIPPED \\][^\r\n]*[\r\n]+)+$")

# Long tests first, so that none runs alone at the end: many cases, or blocks of hundreds of threads
# under every schedule.
function(add_gate name filter)
  string(REGEX MATCHALL ":" cost ":${filter}")
  list(LENGTH cost cost)
  if(name MATCHES "Persistent|mission|medium")
    math(EXPR cost "${cost} * 100")
  endif()
  add_test(${name} ${SDPA_GATES} --gtest_filter=${filter})
  set_tests_properties(
    ${name} PROPERTIES LABELS "${SDPA_GATES_LABELS}" TIMEOUT ${SDPA_GATES_TIMEOUT}
                       SKIP_REGULAR_EXPRESSION "${all_skipped}" COST ${cost})
endfunction()

if(EXISTS ${SDPA_GATES})
  execute_process(COMMAND ${SDPA_GATES} --gtest_list_tests OUTPUT_VARIABLE listing
                  ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    # gates.discovery runs the same command, fails and shows what the binary said.
    set(listing "")
  endif()
  # "Suite." lines, each followed by "  Test  # GetParam() = ..." lines.
  string(REGEX REPLACE "[\r\n]+" ";" lines "${listing}")
  set(groups "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE " *#.*$" "" line "${line}")
    if(line MATCHES "^([^ ]+\\.)$")
      set(suite ${CMAKE_MATCH_1})
    elseif(line MATCHES "^  (.+)$")
      set(test ${suite}${CMAKE_MATCH_1})
      set(group ${test})
      if("sanitizer" IN_LIST SDPA_GATES_LABELS)
        if(test MATCHES "/device(_|$)")
          continue()
        elseif(test MATCHES "Equality|Ladder|Metamorphic\\.|Families\\.(EveryFamily|Sixteen|ALongTail|Equal|OneHot|ScoresAt)|AdversaryLengths")
          # They ask about values, or orders that the executor judges. Sanitizers look at accesses,
          # which other tests' lengths decide.
          continue()
        elseif(SDPA_GATES_SANITIZER STREQUAL "thread"
               AND test MATCHES "Families\\.|Views|PlansMay|Hostile|Nothing|EveryLength|MoreKeys|BothFormats|FewKeys|CausalTiles|Quantiser\\.(Gives|Finds|Takes|Reads|Has)|QuantisedAttention")
          # Nor do lengths, masks and formats decide who waits for whom.
          continue()
        endif()
      endif()
      if(group MATCHES "^(.*[/_](stage_c|sm[0-9]+|decode))(_[A-Za-z0-9_]+)?$")
        set(group ${CMAKE_MATCH_1})
      endif()
      # A process takes seconds to open a device, and each computes its shape's references: there, a
      # shape's variants are one test, and so are a suite's.
      if(test MATCHES "^(.*ForwardGate\\.Passes/device_.*)_seed[0-9]+_")
        set(group ${CMAKE_MATCH_1})
      elseif(test MATCHES "/device(_|$)")
        set(group ${suite}device)
      endif()
      string(REPLACE "Gates/ForwardGate.Passes/" "gate/" group ${group})
      string(MAKE_C_IDENTIFIER ${group} key)
      if(NOT DEFINED filter_${key})
        list(APPEND groups ${group})
        set(filter_${key} ${test})
      else()
        string(APPEND filter_${key} ":${test}")
      endif()
    endif()
  endforeach()
  foreach(group IN LISTS groups)
    string(MAKE_C_IDENTIFIER ${group} key)
    add_gate(${group} "${filter_${key}}")
  endforeach()
endif()
