// reshape_and_cache: the checks of arguments.

inline void check_cache(const Tensor& key, const Tensor& value, const Tensor& key_cache, const Tensor& value_cache,
                        const Tensor& slots) {
  const Check keys = on_device(check(key, "key")).dtype(opwheel::every_dtype).ndim(3);
  const int64_t tokens = keys.info().sizes[0], heads = keys.info().sizes[1], length = keys.info().sizes[2];
  on_device(check(value, "value")).same_device(key, "key").same_dtype(key, "key").shape({tokens, heads, -1});
  const opwheel::TensorInfo values(value);
  const Check cache = on_device(check(key_cache, "key_cache"))
                          .same_device(key, "key")
                          .same_dtype(key, "key")
                          .shape({-1, -1, heads, length});
  const int64_t blocks = cache.info().sizes[0], block_size = cache.info().sizes[1];
  on_device(check(value_cache, "value_cache"))
      .same_device(key, "key")
      .same_dtype(key, "key")
      .shape({blocks, block_size, heads, values.sizes[2]});
  const auto check_written = [&](const Tensor& cache, std::string_view name) {
    check_elements_apart(cache, name);
    check_apart(cache, name, key, "key", kIsRead);
    check_apart(cache, name, value, "value", kIsRead);
  };
  check_written(key_cache, "key_cache");
  check_written(value_cache, "value_cache");
  check_apart(value_cache, "value_cache", key_cache, "key_cache");
  on_device(check(slots, "slot_mapping")).same_device(key, "key").dtype(ScalarType::Long).shape({tokens});
}
