# cudnn-frontend (header-only) and cuDNN's headers, from the system or from Python wheels.
#
#   SDPA_CUDNN_ROOT               a folder to look in first: a prefix, or a site-packages folder; the
#                                 variable, then the environment
#   CudnnFrontend_FOUND
#   CudnnFrontend::CudnnFrontend  include folders; cuDNN itself is loaded when it is needed
#   CudnnFrontend_CUDNN_LIBRARY   libcudnn.so.9 beside the headers, if it is there: where to load it
#                                 from when the loader's own path does not have it
include(FindPackageHandleStandardArgs)
set(SDPA_CUDNN_ROOT "" CACHE PATH "Where cudnn-frontend and cuDNN are: a prefix or a site-packages")

# Without a question to Python, which takes a second: virtual environments and users' folders.
file(GLOB sdpa_site_packages
     "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages" "$ENV{HOME}/.local/lib/python3*/site-packages"
     /usr/local/lib/python3*/site-packages /usr/local/lib/python3*/dist-packages)
set(sdpa_cudnn_roots ${SDPA_CUDNN_ROOT} $ENV{SDPA_CUDNN_ROOT} $ENV{CUDNN_FRONTEND_PATH}
                     $ENV{CUDNN_PATH} ${sdpa_site_packages})

find_path(CudnnFrontend_INCLUDE_DIR cudnn_frontend.h HINTS ${sdpa_cudnn_roots}
          PATH_SUFFIXES include)
find_path(
  CudnnFrontend_CUDNN_INCLUDE_DIR cudnn.h
  HINTS ${sdpa_cudnn_roots} ${CUDAToolkit_INCLUDE_DIRS}
  PATH_SUFFIXES include nvidia/cudnn/include)
find_file(
  CudnnFrontend_CUDNN_LIBRARY libcudnn.so.9
  HINTS ${sdpa_cudnn_roots} ${CUDAToolkit_LIBRARY_DIR}
  PATHS /usr/lib/x86_64-linux-gnu
  PATH_SUFFIXES lib lib64 nvidia/cudnn/lib)

set(CudnnFrontend_VERSION "")
if(CudnnFrontend_INCLUDE_DIR)
  file(STRINGS ${CudnnFrontend_INCLUDE_DIR}/cudnn_frontend_version.h version_lines
       REGEX "define CUDNN_FRONTEND_(MAJOR|MINOR|PATCH)_VERSION [0-9]+")
  string(REGEX MATCHALL "[0-9]+" version_parts "${version_lines}")
  list(JOIN version_parts . CudnnFrontend_VERSION)
endif()

find_package_handle_standard_args(
  CudnnFrontend
  REQUIRED_VARS CudnnFrontend_INCLUDE_DIR CudnnFrontend_CUDNN_INCLUDE_DIR
  VERSION_VAR CudnnFrontend_VERSION)
if(CudnnFrontend_FOUND AND NOT TARGET CudnnFrontend::CudnnFrontend)
  add_library(CudnnFrontend::CudnnFrontend INTERFACE IMPORTED)
  target_include_directories(
    CudnnFrontend::CudnnFrontend INTERFACE ${CudnnFrontend_INCLUDE_DIR}
                                           ${CudnnFrontend_CUDNN_INCLUDE_DIR})
endif()
mark_as_advanced(CudnnFrontend_INCLUDE_DIR CudnnFrontend_CUDNN_INCLUDE_DIR
                 CudnnFrontend_CUDNN_LIBRARY)
