# find_package(fp8_sdpa): the library, its headers and a package configuration.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(sdpa_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fp8_sdpa)
install(
  TARGETS fp8_sdpa
  EXPORT fp8_sdpa_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/kernels/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Beside the headers that include it, which look there first.
install(FILES ${PROJECT_SOURCE_DIR}/kernels/gpu/types.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fp8_sdpa/gpu)
install(
  EXPORT fp8_sdpa_targets
  NAMESPACE fp8_sdpa::
  DESTINATION ${sdpa_package_dir})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/fp8_sdpaConfig.cmake.in
  ${PROJECT_BINARY_DIR}/generated/fp8_sdpaConfig.cmake
  INSTALL_DESTINATION ${sdpa_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/fp8_sdpaConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/fp8_sdpaConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/fp8_sdpaConfigVersion.cmake
        DESTINATION ${sdpa_package_dir})
