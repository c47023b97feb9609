# find_package(Armillary) gives Armillary::runtime, a shared library, and Armillary::runtime_static.
# Both come with the folder of armillary_runtime.h and armillary.hpp. Paths are relative to this file.
get_filename_component(_armillary_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(Armillary_INCLUDE_DIRS "${_armillary_prefix}/include")

if(NOT TARGET Armillary::runtime)
  add_library(Armillary::runtime SHARED IMPORTED)
  set_target_properties(Armillary::runtime PROPERTIES
    IMPORTED_LOCATION "${_armillary_prefix}/lib/libarmillary_runtime.so"
    IMPORTED_SONAME "libarmillary_runtime.so"
    INTERFACE_INCLUDE_DIRECTORIES "${Armillary_INCLUDE_DIRS}")
endif()

if(NOT TARGET Armillary::runtime_static AND EXISTS "${_armillary_prefix}/lib/libarmillary_runtime.a")
  include(CMakeFindDependencyMacro)
  find_dependency(Threads)
  add_library(Armillary::runtime_static STATIC IMPORTED)
  set_target_properties(Armillary::runtime_static PROPERTIES
    IMPORTED_LOCATION "${_armillary_prefix}/lib/libarmillary_runtime.a"
    INTERFACE_INCLUDE_DIRECTORIES "${Armillary_INCLUDE_DIRS}"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")
endif()

unset(_armillary_prefix)
