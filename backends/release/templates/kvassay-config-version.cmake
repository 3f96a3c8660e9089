# Before 1.0 a minor version may break what is public: the first two numbers must be the same.
set(PACKAGE_VERSION "$version")
string(REGEX REPLACE "^([0-9]+\\.[0-9]+).*" "\\1" _kvassay_here "$${PACKAGE_VERSION}")
string(REGEX REPLACE "^([0-9]+\\.[0-9]+).*" "\\1" _kvassay_asked "$${PACKAGE_FIND_VERSION}")
if(PACKAGE_FIND_VERSION STREQUAL "" OR (_kvassay_here STREQUAL _kvassay_asked
    AND NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_VERSION STREQUAL PACKAGE_FIND_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
else()
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
endif()
