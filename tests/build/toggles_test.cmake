# cmake -P script: cmake/toggles.cmake. A refused value ends a script, so those cases run this
# script again with REFUSE set.
cmake_minimum_required(VERSION 3.25)
if(DEFINED REFUSE)
  include(${SOURCE_DIR}/cmake/toggles.cmake)
  return()
elseif(DEFINED GIVEN)
  # A toggle is chosen by giving it, whatever its value.
  include(${SOURCE_DIR}/cmake/toggles.cmake)
  sdpa_toggle_definitions(definitions)
  if(NOT FP8_SDPA_TOGGLES_CHOSEN=1 IN_LIST definitions)
    message(FATAL_ERROR "USE_CP_ASYNC=1 was given, but: ${definitions}")
  endif()
  return()
endif()

include(${SOURCE_DIR}/cmake/toggles.cmake)

sdpa_toggle_definitions(definitions)
if(NOT FP8_SDPA_TOGGLES_CHOSEN=0 IN_LIST definitions)
  message(SEND_ERROR "nobody chose a toggle, but: ${definitions}")
endif()

function(expect toggle value want)
  set(${toggle} ${value})
  sdpa_read_toggle(${toggle} got)
  if(NOT got STREQUAL want)
    message(SEND_ERROR "${toggle}=${value}: got '${got}', want '${want}'")
  endif()
endfunction()

expect(USE_KV_LUT 0 0)
expect(USE_KV_LUT OFF 0)
expect(USE_CP_ASYNC 1 1)
expect(USE_CP_ASYNC on 1)

set(USE_WMMA_PV ON)
sdpa_toggle_definitions(definitions)
foreach(want FP8_SDPA_TOGGLES_CHOSEN=1 FP8_SDPA_DEFAULT_USE_CP_ASYNC=1 FP8_SDPA_DEFAULT_USE_WMMA_PV=1
             FP8_SDPA_DEFAULT_USE_KV_LUT=0)
  if(NOT want IN_LIST definitions)
    message(SEND_ERROR "${want} is not among ${definitions}")
  endif()
endforeach()

foreach(value 2 yes "" -1)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${SOURCE_DIR} -D REFUSE=1 -D USE_KV_LUT=${value} -P
            ${CMAKE_SCRIPT_MODE_FILE}
    RESULT_VARIABLE failed
    OUTPUT_QUIET
    ERROR_VARIABLE message)
  if(NOT failed)
    message(SEND_ERROR "USE_KV_LUT='${value}' was accepted")
  elseif(NOT message MATCHES "USE_KV_LUT=${value}")
    message(SEND_ERROR "USE_KV_LUT='${value}': the message does not say so: ${message}")
  endif()
endforeach()

foreach(name USE_KVLUT use_kv_lut USE_SWIZZLE)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${SOURCE_DIR} -D REFUSE=1 -D ${name}=1 -P ${CMAKE_SCRIPT_MODE_FILE}
    RESULT_VARIABLE failed
    OUTPUT_QUIET
    ERROR_VARIABLE message)
  if(NOT failed OR NOT message MATCHES "${name}: no such toggle;[ \n]+there[ \n]+are")
    message(SEND_ERROR "${name}=1, which is no toggle, is not refused by its name: ${message}")
  endif()
endforeach()

execute_process(COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${SOURCE_DIR} -D GIVEN=1 -D USE_CP_ASYNC=1 -P
                        ${CMAKE_SCRIPT_MODE_FILE} RESULT_VARIABLE failed)
if(failed)
  message(SEND_ERROR "a toggle that was given did not count as chosen")
endif()
