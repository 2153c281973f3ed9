"""What transformer_ops and muladd take on a GPU, against what else computes the same.

    python -m benchmarks.gpu --warm                                    # compiles the baselines, in parallel
    python -m benchmarks.gpu --json benchmarks/results/gpu-speed.json  # measures

The memory-bound operators of transformer_ops in the sizes of a model of 7 billion parameters and of its decoding, and
muladd, take turns with eager PyTorch, `torch.compile`, Liger-Kernel where it is installed, and a copy of as many bytes.
`cases` is the table of what is measured, `measure` times a case, `worker` is the process of one backend, and `tables`
writes the results in Markdown.
"""
