# Targets kvassay::kvassay (shared) and kvassay::static, wherever this folder was put.
get_filename_component(_kvassay_root "$${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET kvassay::kvassay)
  add_library(kvassay::kvassay SHARED IMPORTED)
  set_target_properties(kvassay::kvassay PROPERTIES
    IMPORTED_LOCATION "$${_kvassay_root}/$shared"
    INTERFACE_INCLUDE_DIRECTORIES "$${_kvassay_root}/include")
  if(WIN32)
    set_target_properties(kvassay::kvassay PROPERTIES IMPORTED_IMPLIB "$${_kvassay_root}/$implib")
  endif()

  add_library(kvassay::static STATIC IMPORTED)
  set_target_properties(kvassay::static PROPERTIES
    IMPORTED_LOCATION "$${_kvassay_root}/$static"
    INTERFACE_INCLUDE_DIRECTORIES "$${_kvassay_root}/include"
    INTERFACE_LINK_LIBRARIES "$libraries")
endif()
