"""Ready architectures: one file each, `build(arguments, input_shape, classes) -> nn.Module` and OBJECTIVE, a loss."""
