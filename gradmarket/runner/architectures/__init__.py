"""Ready architectures: each file has `build(arguments, input_shape, classes) -> nn.Module`, and OBJECTIVE, a loss."""
