// The samples that trained.py wrote, and the comparison of a model's scores with those that eager PyTorch gave.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace samples {

constexpr int64_t kPixels = 64;
constexpr int64_t kDigits = 10;
constexpr float kRoundings = 32;  // of the largest score, that sums of 128 products may differ by

template <class T>
std::vector<T> read(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + file.string() + "; export.py writes it");
  std::vector<T> values(std::filesystem::file_size(file) / sizeof(T));
  stream.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  return values;
}

struct Samples {
  std::vector<float> pixels, scores;
  std::vector<int64_t> side, digit;

  explicit Samples(const std::filesystem::path& folder)
      : pixels(read<float>(folder / "pixels.bin")),
        scores(read<float>(folder / "scores.bin")),
        side(read<int64_t>(folder / "side.bin")),
        digit(read<int64_t>(folder / "digit.bin")) {}

  int64_t size() const { return static_cast<int64_t>(side.size()); }

  // Prints one line about the scores of the first n samples and says whether they are those of eager PyTorch.
  bool compare(const float* found, int64_t n) const {
    int64_t right = 0;
    float difference = 0, largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float* row = found + i * kDigits;
      right += std::max_element(row, row + kDigits) - row == digit[i];
      for (int64_t j = 0; j < kDigits; ++j) {
        const float expected = scores[i * kDigits + j];
        const float distance = std::fabs(row[j] - expected);
        largest = std::max(largest, std::fabs(expected));
        difference = distance <= difference ? difference : distance;  // a NaN stays
      }
    }
    const float tolerance = kRoundings * std::numeric_limits<float>::epsilon() * largest;
    std::printf("%lld of %lld images right, scores differ from eager PyTorch by at most %.1e (tolerance %.1e)\n",
                static_cast<long long>(right), static_cast<long long>(n), difference, tolerance);
    return difference <= tolerance;
  }
};

}  // namespace samples
