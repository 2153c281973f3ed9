#include "notation.h"

#include <algorithm>
#include <iterator>
#include <locale>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "formula.h"

namespace opwheel::autograd {

namespace {

using Kind = Expression::Kind;

constexpr char kHead[] = "opwheel-derivatives 3";  // _HEAD in opwheel/dispatch/derivatives/notation.py

c10::OperatorHandle find(const std::string& name) {
  const size_t dot = name.find('.');
  const auto found = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (!found) throw std::invalid_argument("there is no operator " + name);
  return *found;
}

// The instruction of a line, and what stands behind it.
std::pair<std::string, std::string> split(const std::string& line) {
  const size_t space = std::min(line.find(' '), line.size());
  return {line.substr(0, space), line.substr(std::min(space + 1, line.size()))};
}

// A number that is all of the text. Whatever the program's locale is, it has a point.
template <class T>
T number(const std::string& text) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  T value;
  if (!(stream >> value) || stream.peek() != std::istringstream::traits_type::eof()) {
    throw std::invalid_argument("'" + text + "' is not a number that it can have");
  }
  return value;
}

size_t count_of(const std::string& text) {
  const int count = number<int>(text);
  if (count < 0) throw std::invalid_argument("'" + text + "' is no number of things");
  return static_cast<size_t>(count);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

void note_gradients(const Expression& expression, c10::SmallVector<bool, 4>& used) {
  if (expression.kind == Expression::Kind::gradient) used[expression.index] = true;
  if (expression.kind == Expression::Kind::gradients) used.assign(used.size(), true);
  for (const Expression& part : expression.parts) note_gradients(part, used);
}

void note_uncovered(Operator& op) {
  if (op.formulas.empty()) return;
  auto used = op.without_gradient;
  for (const Formula& formula : op.formulas) note_gradients(formula.expression, used);
  for (int i = 0; i < op.result_count; ++i) {
    if (!used[i]) op.uncovered.push_back(i);
  }
}

int position_of_tensor(const Operator& op, const std::string& name) {
  for (int i : op.tensors) {
    const c10::Argument& argument = op.schema().arguments()[i];
    const bool is_written = argument.alias_info() && argument.alias_info()->isWrite();
    if (argument.name() == name && (op.is_in_place || !is_written)) return i;
  }
  throw std::invalid_argument("'" + name + "' is no tensor among its arguments");
}

int position_of_argument(const Operator& op, const std::string& name) {
  const std::optional<int> found = op.schema().argumentIndexWithName(name);
  if (!found) throw std::invalid_argument("it has no argument '" + name + "'");
  return *found;
}

int position_of_result(const Operator& op, const std::string& name) {
  const auto found = std::find(op.result_names.begin(), op.result_names.end(), name);
  if (found == op.result_names.end()) throw std::invalid_argument("it has no result '" + name + "'");
  return static_cast<int>(found - op.result_names.begin());
}

// One operator, instruction by instruction.
class OperatorReader {
 public:
  explicit OperatorReader(const std::string& name) : op_(std::make_unique<Operator>(find(name))) {
    if (op_->is_in_place && (op_->result_count != 1 || op_->written.size() != 1)) {
      throw std::invalid_argument(op_->name + ": an in-place operator overwrites one argument and has one result");
    }
  }

  void read(const std::string& line) try {
    const auto [instruction, rest] = split(line);
    const auto found = kInstructions.find(instruction);
    if (found == kInstructions.end()) throw std::invalid_argument("it is not understood");
    (this->*found->second)(rest);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(op_->name + ": " + error.what() + ", in '" + line + "'");
  }

  std::unique_ptr<Operator> finished() {
    if (!stack_.empty()) throw std::invalid_argument(op_->name + ": a formula is not complete");
    std::stable_sort(op_->formulas.begin(), op_->formulas.end(),
                     [](const Formula& a, const Formula& b) { return a.targets.size() > b.targets.size(); });
    note_uncovered(*op_);
    return std::move(op_);
  }

 private:
  static const std::map<std::string, void (OperatorReader::*)(const std::string&)> kInstructions;
  static const std::map<std::string, Property> kProperties;

  void push(Expression expression) { stack_.push_back(std::move(expression)); }

  std::vector<Expression> pop(size_t count) {
    if (count > stack_.size()) throw std::invalid_argument("its parts are not there");
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<Expression> parts(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    return parts;
  }

  void reference(const std::string& name) { op_->reference = find(name); }
  void recorded(const std::string& name) {
    const c10::OperatorHandle training = find(name);
    const c10::FunctionSchema& schema = training.schema();
    if (schema.arguments().size() != op_->schema().arguments().size() ||
        schema.returns().size() < op_->schema().returns().size()) {
      throw std::invalid_argument(name + " does not take the same and return as much");
    }
    op_->recorded = training;
  }
  void fixed_result(const std::string& name) { op_->without_gradient[position_of_result(*op_, name)] = true; }
  void fixed_argument(const std::string& name) { op_->constants.push_back(position_of_tensor(*op_, name)); }
  void no_derivative(const std::string&) { op_->is_differentiable = false; }
  void random(const std::string&) { op_->is_random = true; }

  void gradient(const std::string& result) {
    push(make_given(Kind::gradient, position_of_result(*op_, result), c10::TensorType::get()));
  }
  void gradients(const std::string&) { push(make_given(Kind::gradients, 0, c10::ListType::ofTensors())); }
  void argument(const std::string& name) {
    const int position = position_of_argument(*op_, name);
    push(make_given(Kind::argument, position, op_->schema().arguments()[position].real_type()));
  }
  void result(const std::string& name) {
    push(make_given(Kind::result, position_of_result(*op_, name), c10::TensorType::get()));
  }
  void none(const std::string&) { push(make_constant({})); }
  void boolean(const std::string& value) { push(make_constant(number<bool>(value))); }
  void integer(const std::string& value) { push(make_constant(number<int64_t>(value))); }
  void floating(const std::string& value) { push(make_constant(number<double>(value))); }
  void string(const std::string& value) { push(make_constant(value)); }
  void listed(const std::string& count) { push(make_list(pop(count_of(count)))); }
  void property(const std::string& rest) {
    const auto [name, dimension] = split(rest);
    const auto found = kProperties.find(name);
    if (found == kProperties.end() || (found->second == Property::size) == dimension.empty()) {
      throw std::invalid_argument("there is no such property");
    }
    push(make_property(found->second, dimension.empty() ? 0 : number<int>(dimension), std::move(pop(1)[0])));
  }
  void negate(const std::string&) { push(make_negative(std::move(pop(1)[0]))); }
  void conjugate(const std::string&) { push(make_conjugate(std::move(pop(1)[0]))); }
  template <Kind kind>
  void arithmetic(const std::string&) {
    std::vector<Expression> parts = pop(2);
    push(make_arithmetic(kind, std::move(parts[0]), std::move(parts[1])));
  }
  void called(const std::string& rest) {
    const std::vector<std::string> words = words_of(rest);
    if (words.size() < 2) throw std::invalid_argument("an operator and a number are expected");
    const std::vector<std::string> keywords(words.begin() + 2, words.end());
    push(make_call(words[0], pop(count_of(words[1]) + keywords.size()), keywords));
  }
  void called_in_place(const std::string& rest) {
    called(rest);
    push(make_call_in_place(std::move(pop(1)[0])));
  }

  // The expression that is there becomes the formula of arguments, each with the number of its value.
  void formula(const std::string& rest) {
    const std::vector<std::string> words = words_of(rest);
    if (words.empty() || words.size() % 2 != 0) throw std::invalid_argument("pairs are expected");
    Formula formula;
    for (size_t i = 0; i < words.size(); i += 2) {
      formula.targets.push_back(position_of_tensor(*op_, words[i]));
      formula.values.push_back(number<int>(words[i + 1]));
    }
    const auto [least, most] = std::minmax_element(formula.values.begin(), formula.values.end());
    formula.expression = std::move(pop(1)[0]);
    if (!stack_.empty()) throw std::invalid_argument("there is more than one expression");
    const bool is_call = formula.expression.kind == Kind::call;
    const size_t count = is_call ? formula.expression.callee->schema().returns().size() : 1;
    const size_t needed = static_cast<size_t>(*most) + 1;
    if (*least != 0 || count != needed) {
      throw std::invalid_argument("a derivative has " + std::to_string(count) + " values, its arguments take " +
                                  std::to_string(needed));
    }
    op_->formulas.push_back(std::move(formula));
  }

  std::unique_ptr<Operator> op_;
  std::vector<Expression> stack_;
};

const std::map<std::string, Property> OperatorReader::kProperties = {
    {"size", Property::size},
    {"sizes", Property::sizes},
    {"numel", Property::numel},
    {"dim", Property::dim},
    {"scalar_type", Property::scalar_type},
    {"device", Property::device},
    {"layout", Property::layout},
};

const std::map<std::string, void (OperatorReader::*)(const std::string&)> OperatorReader::kInstructions = {
    {"reference", &OperatorReader::reference},
    {"recorded", &OperatorReader::recorded},
    {"fixed_result", &OperatorReader::fixed_result},
    {"fixed_argument", &OperatorReader::fixed_argument},
    {"no_derivative", &OperatorReader::no_derivative},
    {"random", &OperatorReader::random},
    {"formula", &OperatorReader::formula},
    {"gradient", &OperatorReader::gradient},
    {"gradients", &OperatorReader::gradients},
    {"argument", &OperatorReader::argument},
    {"result", &OperatorReader::result},
    {"none", &OperatorReader::none},
    {"bool", &OperatorReader::boolean},
    {"int", &OperatorReader::integer},
    {"float", &OperatorReader::floating},
    {"string", &OperatorReader::string},
    {"list", &OperatorReader::listed},
    {"call", &OperatorReader::called},
    {"call_in_place", &OperatorReader::called_in_place},
    {"property", &OperatorReader::property},
    {"negate", &OperatorReader::negate},
    {"conjugate", &OperatorReader::conjugate},
    {"add", &OperatorReader::arithmetic<Kind::add>},
    {"subtract", &OperatorReader::arithmetic<Kind::subtract>},
    {"multiply", &OperatorReader::arithmetic<Kind::multiply>},
    {"divide", &OperatorReader::arithmetic<Kind::divide>},
};

}  // namespace

std::vector<std::unique_ptr<Operator>> read_operators(const std::string& text) {
  if (text.empty()) return {};  // of a library whose derivatives nobody has asked for
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  if (line != kHead) {
    throw std::invalid_argument("the derivatives begin with '" + line + "', and this Autograd library reads '" + kHead +
                                "'; build the operator library and take the Autograd library with the same opwheel");
  }
  std::vector<std::unique_ptr<Operator>> operators;
  std::optional<OperatorReader> reader;
  bool is_complete = false;
  while (std::getline(lines, line)) {
    if (is_complete)
      throw std::invalid_argument("the derivatives are damaged: after their end there is '" + line + "'");
    if (line == "end") {
      is_complete = true;
    } else if (const auto [instruction, name] = split(line); instruction == "operator") {
      if (reader) operators.push_back(reader->finished());
      reader.emplace(name);
    } else if (reader) {
      reader->read(line);
    } else {
      throw std::invalid_argument("the derivatives name no operator before '" + line + "'");
    }
  }
  if (!is_complete) throw std::invalid_argument("the derivatives are damaged: there is no 'end'");
  if (reader) operators.push_back(reader->finished());
  return operators;
}

}  // namespace opwheel::autograd
