# find_package(muladd_executorch REQUIRED), with `python -m muladd_executorch --cmake-dir` in CMAKE_PREFIX_PATH.
#
#   muladd_executorch_kernels(NAME [ROOT_OPS operator... | MODEL program.pte])
#     An object library with muladd's kernels of the listed operators, of those a program calls, or of all.
#
#   executorch_kernels(NAME YAML custom_ops.yaml SOURCES file... [HEADER file]
#                      [ROOT_OPS operator... | MODEL program.pte])
#     The same for operators of your own: the file names their kernels, the sources define them and may use
#     elementwise.h. The header declares them; without one they are functions with the schema's signature.
#
# An executable or shared library that links NAME contains only the kernels that are selected, and registers them when it
# is loaded. Code generation runs with the Python that has muladd-executorch and executorch, Python_EXECUTABLE.
cmake_minimum_required(VERSION 3.28)

find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util as u, os; print(*(os.path.dirname(u.find_spec(name).origin) for name in ('executorch.version', 'muladd', 'opwheel_tools', 'muladd_executorch')), sep=';')"
  OUTPUT_VARIABLE _packages OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE _result ERROR_VARIABLE _error)
if(NOT _result EQUAL 0)
  message(FATAL_ERROR "muladd_executorch: ${Python_EXECUTABLE} does not have executorch, opwheel-tools, muladd-core and "
                      "muladd-executorch; pass -DPython_EXECUTABLE=... of an environment that does.\n${_error}")
endif()
list(GET _packages 0 _executorch)
list(GET _packages 1 _muladd)
list(GET _packages 2 _opwheel_tools)
list(GET _packages 3 _muladd_executorch)
set(MULADD_EXECUTORCH_SDK "${_muladd_executorch}/sdk")
set(MULADD_INCLUDES "${_muladd}/include" "${_opwheel_tools}/include")
find_package(executorch 1.5 REQUIRED CONFIG PATHS "${_executorch}")

function(executorch_kernels NAME)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "YAML;HEADER;MODEL" "SOURCES;ROOT_OPS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_YAML OR NOT arg_SOURCES OR (arg_ROOT_OPS AND arg_MODEL))
    message(FATAL_ERROR "executorch_kernels(${NAME} ...): expected YAML, SOURCES and at most one of ROOT_OPS and "
                        "MODEL; got ${ARGN}")
  endif()
  set(options)
  if(arg_HEADER)
    list(APPEND options "--header=${arg_HEADER}")
  endif()
  if(arg_ROOT_OPS)
    list(JOIN arg_ROOT_OPS "," operators)
    list(APPEND options "--root-ops=${operators}")
  elseif(arg_MODEL)
    file(REAL_PATH "${arg_MODEL}" model BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND options "--model=${model}")
  endif()
  file(REAL_PATH "${arg_YAML}" yaml BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")

  set(generated "${CMAKE_CURRENT_BINARY_DIR}/${NAME}")
  set(register "${generated}/RegisterCodegenUnboxedKernelsEverything.cpp")
  add_custom_command(
    OUTPUT "${register}"
    COMMAND "${Python_EXECUTABLE}" -m muladd_executorch.select --yaml "${yaml}" --output "${generated}" ${options}
    DEPENDS "${yaml}" ${model}
    COMMENT "Select kernels for ${NAME}"
    VERBATIM)

  add_library(${NAME} OBJECT ${arg_SOURCES} "${register}")
  target_compile_features(${NAME} PUBLIC cxx_std_17)
  set_target_properties(${NAME} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${NAME} PRIVATE -ffunction-sections -fdata-sections)
  target_include_directories(${NAME} PRIVATE "${generated}" "${MULADD_EXECUTORCH_SDK}/csrc")
  target_link_libraries(${NAME} PUBLIC executorch::runtime)
  # What no selected kernel refers to goes away here.
  target_link_options(${NAME} INTERFACE -Wl,--gc-sections)
endfunction()

function(muladd_executorch_kernels NAME)
  executorch_kernels(${NAME}
    YAML "${_muladd_executorch}/custom_ops.yaml" SOURCES "${MULADD_EXECUTORCH_SDK}/csrc/kernels.cpp" HEADER kernels.h
    ${ARGN})
  target_include_directories(${NAME} PRIVATE ${MULADD_INCLUDES})
endfunction()
