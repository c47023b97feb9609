# The version is that of the header beside it; one of the same first number that is not older fits.
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../../../include/armillary_runtime.h" _line REGEX "^#define ARM_VERSION ")
string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" PACKAGE_VERSION "${_line}")
string(REGEX REPLACE "^([0-9]+).*" "\\1" _first "${PACKAGE_VERSION}")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION OR
   (PACKAGE_FIND_VERSION AND NOT PACKAGE_FIND_VERSION_MAJOR STREQUAL "${_first}"))
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
