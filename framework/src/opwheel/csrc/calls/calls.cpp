// Functions of Python that call an operator through PyTorch's dispatcher: what torch.ops does, without the search for
// the overload, the schema's matching and the conversions of pybind11, which take longer than a small operator.
//
// Only calls that need nothing of this are made here: plain tensors and numbers of exactly the types in the schema, all
// of them given. Any other call (keywords in another order, subclasses of Tensor, torch function modes, a wrong type,
// a missing argument) is handed to PyTorch's own function with the arguments as they are: what it accepts and what it
// says are PyTorch's, but for the type of an argument.
//
// Only the limited API of Python is used, so that one library serves every CPython from 3.10 on (with its lock). Of
// PyTorch's Python bindings it needs what is declared below; its header would bring pybind11, which is not limited.
#define Py_LIMITED_API 0x030A0000
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <Python.h>
#include <c10/util/SmallVector.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// libtorch_python, as of PyTorch 2.10 to 2.15.
extern PyObject* THPVariableClass;
extern PyObject* ParameterClass;
PyObject* THPVariable_Wrap(at::TensorBase&& tensor);
namespace torch {
void translate_exception_to_python(const std::exception_ptr& error);
}

namespace opwheel {
namespace {

// How torch.Tensor's object begins; is_as_expected() makes sure of it.
struct TensorObject {
  PyObject_HEAD at::Tensor tensor;
};

enum class Type { tensor, number, integer, boolean, text };

struct Argument {
  Type type;
  bool is_optional;
  PyObject* keyword;  // its name, interned, if it is given by name; never freed, as interned names are
};

// What a call reads is in one place, as that of csrc/autograd/operator.h.
struct Call {
  PyMethodDef definition{};
  c10::OperatorHandle op;
  size_t positional = 0;
  c10::SmallVector<Argument, 4> arguments;
  PyObject* torch_function;  // owned
  std::string name;
};

class ReleasedLock {
 public:
  ReleasedLock() : state_(PyEval_SaveThread()) {}
  ~ReleasedLock() { PyEval_RestoreThread(state_); }
  ReleasedLock(const ReleasedLock&) = delete;
  ReleasedLock& operator=(const ReleasedLock&) = delete;

 private:
  PyThreadState* state_;
};

// Puts the value on the stack; false if it is not of exactly the type.
bool push(const Argument& argument, PyObject* value, std::vector<c10::IValue>& stack) {
  if (argument.is_optional && value == Py_None) {
    stack.emplace_back();
    return true;
  }
  PyTypeObject* const type = Py_TYPE(value);
  switch (argument.type) {
    case Type::tensor:
      if (type != reinterpret_cast<PyTypeObject*>(THPVariableClass) &&
          type != reinterpret_cast<PyTypeObject*>(ParameterClass))
        return false;
      stack.emplace_back(reinterpret_cast<TensorObject*>(value)->tensor);
      return true;
    case Type::number:
      if (type != &PyFloat_Type) return false;
      stack.emplace_back(PyFloat_AsDouble(value));
      return true;
    case Type::integer: {
      if (type != &PyLong_Type) return false;
      int overflow = 0;
      const int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
      stack.emplace_back(number);
      return overflow == 0;
    }
    case Type::boolean:
      if (type != &PyBool_Type) return false;
      stack.emplace_back(value == Py_True);
      return true;
    case Type::text: {
      if (type != &PyUnicode_Type) return false;
      Py_ssize_t length = 0;
      const char* const text = PyUnicode_AsUTF8AndSize(value, &length);
      if (text == nullptr) {
        PyErr_Clear();  // PyTorch's own function says what it is
        return false;
      }
      stack.emplace_back(std::string(text, static_cast<size_t>(length)));
      return true;
    }
  }
  return false;
}

// Puts all arguments on the stack; false if one is not as the schema has it.
bool push_all(const Call& call, PyObject* const* values, size_t positional, PyObject* keywords,
              std::vector<c10::IValue>& stack) {
  const size_t named = keywords == nullptr ? 0 : static_cast<size_t>(PyTuple_Size(keywords));
  if (positional != call.positional || positional + named != call.arguments.size()) return false;
  for (size_t i = 0; i < named; ++i)
    if (PyTuple_GetItem(keywords, static_cast<Py_ssize_t>(i)) != call.arguments[positional + i].keyword) return false;
  if (at::impl::torch_function_mode_enabled()) return false;
  stack.reserve(call.arguments.size());
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (!push(call.arguments[i], values[i], stack)) return false;
  return true;
}

// Of an argument of another type PyTorch says more than anybody reads: a TypeError in its place.
void shorten_error() {
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return;
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  PyObject* const module = PyImport_ImportModule("opwheel.dispatch.arguments");
  PyObject* const other = module == nullptr ? nullptr : PyObject_CallMethod(module, "in_a_sentence", "O", error);
  Py_XDECREF(module);
  if (other == nullptr || other == error) {
    PyErr_Restore(type, error, traceback);
  } else {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(other)), other);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
  }
  Py_XDECREF(other);
}

PyObject* through_torch(const Call& call, PyObject* const* values, size_t positional, PyObject* keywords) {
  PyObject* const arguments = PyTuple_New(static_cast<Py_ssize_t>(positional));
  if (arguments == nullptr) return nullptr;
  for (size_t i = 0; i < positional; ++i) {
    Py_INCREF(values[i]);
    PyTuple_SetItem(arguments, static_cast<Py_ssize_t>(i), values[i]);
  }
  PyObject* named = keywords == nullptr ? nullptr : PyDict_New();
  bool is_ready = keywords == nullptr || named != nullptr;
  for (Py_ssize_t i = 0; is_ready && named != nullptr && i < PyTuple_Size(keywords); ++i)
    is_ready = PyDict_SetItem(named, PyTuple_GetItem(keywords, i), values[positional + static_cast<size_t>(i)]) == 0;
  PyObject* const result = is_ready ? PyObject_Call(call.torch_function, arguments, named) : nullptr;
  Py_XDECREF(named);
  Py_DECREF(arguments);
  if (result == nullptr) shorten_error();
  return result;
}

PyObject* results(std::vector<c10::IValue>& stack) {
  if (stack.empty()) {
    Py_INCREF(Py_None);
    return Py_None;
  }
  if (stack.size() == 1) return THPVariable_Wrap(std::move(stack[0]).toTensor());
  PyObject* const tuple = PyTuple_New(static_cast<Py_ssize_t>(stack.size()));
  for (size_t i = 0; tuple != nullptr && i < stack.size(); ++i) {
    PyObject* const one = THPVariable_Wrap(std::move(stack[i]).toTensor());
    if (one == nullptr) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), one);
  }
  return tuple;
}

PyObject* run(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* keywords) {
  const Call& call = *static_cast<Call*>(PyCapsule_GetPointer(self, nullptr));
  const auto positional = static_cast<size_t>(count);
  try {
    std::vector<c10::IValue> stack;
    if (push_all(call, values, positional, keywords, stack)) {
      // Held until the lock is back: whoever gives up the last reference of C++ to a tensor that Python has needs it.
      c10::SmallVector<at::Tensor, 4> held;
      for (const c10::IValue& value : stack)
        if (value.isTensor()) held.push_back(value.toTensor());
      {
        const ReleasedLock released;
        call.op.callBoxed(stack);
      }
      return results(stack);
    }
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
  return through_torch(call, values, positional, keywords);
}

std::optional<Type> type_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Type::tensor;
    case c10::TypeKind::FloatType:
      return Type::number;
    case c10::TypeKind::IntType:
      return Type::integer;
    case c10::TypeKind::BoolType:
      return Type::boolean;
    case c10::TypeKind::StringType:
      return Type::text;
    default:
      return std::nullopt;
  }
}

// False if an argument or a result is of a type that calls are not made with here.
bool add_arguments(Call& call) {
  for (const c10::Argument& one : call.op.schema().arguments()) {
    const auto optional = one.real_type()->cast<c10::OptionalType>();
    const auto type = type_of(optional ? *optional->getElementType() : *one.real_type());
    if (!type) return false;
    PyObject* const keyword = one.kwarg_only() ? PyUnicode_InternFromString(one.name().c_str()) : nullptr;
    call.arguments.push_back({*type, optional != nullptr, keyword});
    call.positional += one.kwarg_only() ? 0 : 1;
  }
  for (const c10::Argument& one : call.op.schema().returns())
    if (one.type()->kind() != c10::TypeKind::TensorType) return false;
  return true;
}

void remove(PyObject* capsule) {
  auto* const call = static_cast<Call*>(PyCapsule_GetPointer(capsule, nullptr));
  Py_DECREF(call->torch_function);
  delete call;
}

}  // namespace
}  // namespace opwheel

extern "C" {

// Whether objects of torch.Tensor begin as this library takes them to: `tensor` is one, `address` its _cdata.
__attribute__((visibility("default"))) int opwheel_calls_is_as_expected(PyObject* tensor, const void* address) {
  return reinterpret_cast<opwheel::TensorObject*>(tensor)->tensor.unsafeGetTensorImpl() == address;
}

// A function that calls the operator, None if it has arguments or results that such a function does not take. Where it
// does not take a call, it hands it to `torch_function`.
__attribute__((visibility("default"))) PyObject* opwheel_calls_function(const char* name, const char* overload,
                                                                        PyObject* torch_function) {
  using opwheel::Call;
  try {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    auto call = std::make_unique<Call>(Call{{}, op, 0, {}, torch_function, name});
    if (!opwheel::add_arguments(*call)) {
      Py_INCREF(Py_None);
      return Py_None;
    }
    Py_INCREF(torch_function);
    call->definition.ml_name = call->name.c_str();
    call->definition.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(opwheel::run));
    call->definition.ml_flags = METH_FASTCALL | METH_KEYWORDS;
    PyMethodDef* const definition = &call->definition;
    PyObject* const capsule = PyCapsule_New(call.release(), nullptr, opwheel::remove);
    if (capsule == nullptr) return nullptr;
    PyObject* const function = PyCFunction_NewEx(definition, capsule, nullptr);
    Py_DECREF(capsule);
    return function;
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

}  // extern "C"
