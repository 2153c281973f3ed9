// An operator for each type that an argument of a C++ kernel can have.
#pragma once

#define TYPES(KERNEL)                                                                                     \
  KERNEL(number, "number(Tensor x, float value) -> Tensor")                                               \
  KERNEL(integer, "integer(Tensor x, int value) -> Tensor")                                               \
  KERNEL(symbolic, "symbolic(Tensor x, SymInt value) -> Tensor")                                          \
  KERNEL(boolean, "boolean(Tensor x, bool value) -> Tensor")                                              \
  KERNEL(string, "string(Tensor x, str value) -> Tensor")                                                 \
  KERNEL(dtype, "dtype(Tensor x, ScalarType value) -> Tensor")                                            \
  KERNEL(device, "device(Tensor x, Device value) -> Tensor")                                              \
  KERNEL(layout, "layout(Tensor x, Layout value) -> Tensor")                                              \
  KERNEL(memory_format, "memory_format(Tensor x, MemoryFormat value) -> Tensor")                          \
  KERNEL(tensor, "tensor(Tensor x, Tensor value) -> Tensor")                                              \
  KERNEL(optional_number, "optional_number(Tensor x, float? value) -> Tensor")                            \
  KERNEL(optional_integer, "optional_integer(Tensor x, int? value) -> Tensor")                            \
  KERNEL(optional_symbolic, "optional_symbolic(Tensor x, SymInt? value) -> Tensor")                       \
  KERNEL(optional_boolean, "optional_boolean(Tensor x, bool? value) -> Tensor")                           \
  KERNEL(optional_string, "optional_string(Tensor x, str? value) -> Tensor")                              \
  KERNEL(optional_dtype, "optional_dtype(Tensor x, ScalarType? value) -> Tensor")                         \
  KERNEL(optional_device, "optional_device(Tensor x, Device? value) -> Tensor")                           \
  KERNEL(optional_layout, "optional_layout(Tensor x, Layout? value) -> Tensor")                           \
  KERNEL(optional_memory_format, "optional_memory_format(Tensor x, MemoryFormat? value) -> Tensor")       \
  KERNEL(optional_tensor, "optional_tensor(Tensor x, Tensor? value) -> Tensor")                           \
  KERNEL(numbers, "numbers(Tensor x, float[] value) -> Tensor")                                           \
  KERNEL(integers, "integers(Tensor x, int[2] value) -> Tensor")                                          \
  KERNEL(symbolics, "symbolics(Tensor x, SymInt[] value) -> Tensor")                                      \
  KERNEL(booleans, "booleans(Tensor x, bool[] value) -> Tensor")                                          \
  KERNEL(strings, "strings(Tensor x, str[] value) -> Tensor")                                             \
  KERNEL(tensors, "tensors(Tensor x, Tensor[] value) -> Tensor")                                          \
  KERNEL(optional_tensors, "optional_tensors(Tensor x, Tensor?[] value) -> Tensor")                       \
  KERNEL(optional_numbers, "optional_numbers(Tensor x, float[]? value) -> Tensor")                        \
  KERNEL(optional_integers, "optional_integers(Tensor x, int[]? value) -> Tensor")                        \
  KERNEL(optional_symbolics, "optional_symbolics(Tensor x, SymInt[]? value) -> Tensor")                   \
  KERNEL(optional_booleans, "optional_booleans(Tensor x, bool[]? value) -> Tensor")                       \
  KERNEL(optional_strings, "optional_strings(Tensor x, str[]? value) -> Tensor")                          \
  KERNEL(optional_list, "optional_list(Tensor x, Tensor[]? value) -> Tensor")                             \
  KERNEL(generator, "generator(Tensor x, Generator value) -> Tensor")                                     \
  KERNEL(optional_generator, "optional_generator(Tensor x, Generator? value) -> Tensor")                  \
  KERNEL(dropout, "dropout(Tensor x, float p, Generator? generator=None) -> (Tensor y, Tensor mask)")     \
  KERNEL(twelve,                                                                                          \
         "twelve(Tensor x, int a, float b, bool c, str d, int e=5, float f=0.5, *, int[] g=[7, 8], int? " \
         "h=None, Tensor? i=None, ScalarType j=double, str k='l') -> Tensor")                             \
  KERNEL(triples, "triples(Tensor x) -> ()")
