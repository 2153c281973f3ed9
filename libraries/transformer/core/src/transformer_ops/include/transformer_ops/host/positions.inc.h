// The positions of queries, checked: int64, (positions) or (batches or 1, positions).

struct PositionIds {
  Tensor ids;  // contiguous
  int64_t batches;

  // Each is one of the `limit` positions that argument `of` has.
  PositionIds(const Tensor& given, const Tensor& q, int64_t of_batches, int64_t positions, int64_t limit,
              std::string_view of) {
    const Check checked =
        on_device(check(given, "position_ids")).same_device(q, "q").dtype(ScalarType::Long).size(-1, positions);
    if (checked.info().ndim > 2) checked.ndim(2);
    batches = checked.info().ndim == 2 ? checked.info().sizes[0] : 1;
    if (batches != 1) checked.size(0, of_batches);
    ids = contiguous(given);
    check_positions(get(), checked.info().numel, limit, of);
  }
  const int64_t* get() const { return data<int64_t>(ids); }
};
