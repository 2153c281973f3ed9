// Whether multiples of strides add up to a distance: what it comes to whether elements share memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "opwheel/detail/layout.h"

namespace opwheel::detail {

// The sums of n[i] * step[i] over all i, with 0 <= n[i] <= count[i].
//
// Whether a distance is one of them is decided depth first, the longest step first: of its multiples only those are
// tried that leave something between 0 and the sum of all shorter steps, and a multiple of their greatest common
// divisor. That is exact, and takes a few tries for the strides of views; in general the problem is NP-hard (a bounded
// linear Diophantine equation), so that after kTries the distance counts as one that is reached.
class StrideSums {
 public:
  static constexpr int64_t kTries = 10000;

  // Steps are not negative. finish() comes after the last one, and before may_reach().
  void add(int64_t step, int64_t count) {
    if (step > 0 && count > 0) terms_[size_++] = {step, count, 0, 0, 0, 0};
  }

  void finish() {
    merge();
    for (int i = size_ - 1; i >= 0; --i) {
      Term& term = terms_[i];
      const Term& shorter = terms_[i + 1];  // the one behind the last is zero
      term.reach = term.step * term.count + shorter.reach;
      term.divisor = std::gcd(term.step, shorter.divisor);
      term.period = shorter.divisor / term.divisor;
      term.inverse = inverse_of(term.step / term.divisor, term.period);
    }
  }

  bool may_reach(int64_t distance) {
    if (distance < 0 || distance > terms_[0].reach) return false;
    return size_ == 0 || (distance % terms_[0].divisor == 0 && may_reach(0, distance));
  }

 private:
  struct Term {
    int64_t step, count;
    int64_t reach, divisor;   // of this step and all shorter ones
    int64_t period, inverse;  // every period-th multiple leaves a multiple of the shorter steps' divisor
  };
  Term terms_[2 * kMaxDims + 1];  // of two tensors, and zero; the longest step first once they are finished
  int size_ = 0;
  int64_t tries_ = kTries;

  // A step that is a multiple of a shorter one, and leads no further than that does and once more, is the shorter one
  // more often: dimensions without gaps between them become one.
  void merge() {
    std::sort(terms_, terms_ + size_, [](const Term& a, const Term& b) { return a.step < b.step; });
    int last = 0;
    for (int i = 1; i < size_; ++i) {
      Term& shorter = terms_[last];
      const Term& term = terms_[i];
      if (term.step % shorter.step == 0 && term.step / shorter.step <= shorter.count + 1) {
        shorter.count += term.step / shorter.step * term.count;
      } else {
        terms_[++last] = term;
      }
    }
    if (size_ > 0) size_ = last + 1;
    std::reverse(terms_, terms_ + size_);
    terms_[size_] = {};
  }

  // The x with x * number = 1 modulo `modulus`, by Euclid's extended algorithm; of no use where that is 0 or 1.
  static int64_t inverse_of(int64_t number, int64_t modulus) {
    int64_t rest = modulus, next = modulus == 0 ? 0 : number % modulus, factor = 0, next_factor = 1;
    while (next != 0) {
      const int64_t quotient = rest / next;
      rest = std::exchange(next, rest - quotient * next);
      factor = std::exchange(next_factor, factor - quotient * next_factor);
    }
    return factor < 0 ? factor + modulus : factor;
  }

  // Of a distance that is within reach of the terms from i on, and a multiple of their divisor.
  bool may_reach(int i, int64_t distance) {
    const Term &term = terms_[i], &shorter = terms_[i + 1];
    if (i + 1 == size_) return true;
    const int64_t missing = std::max<int64_t>(distance - shorter.reach, 0);
    const int64_t least = (missing + term.step - 1) / term.step, most = std::min(term.count, distance / term.step);
    // The first multiple from the least on that leaves a multiple of the shorter steps' divisor.
    const int64_t left = distance / term.divisor - least * (term.step / term.divisor);
    int64_t further;
    if (__builtin_mul_overflow((left % term.period + term.period) % term.period, term.inverse, &further)) return true;
    for (int64_t n = least + further % term.period; n <= most; n += term.period) {
      if (--tries_ < 0 || may_reach(i + 1, distance - n * term.step)) return true;
    }
    return false;
  }
};

}  // namespace opwheel::detail
