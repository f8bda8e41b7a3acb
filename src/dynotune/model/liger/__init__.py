"""Liger's kernels (liger-kernel, `pip install 'dynotune[liger]'`) behind functions that can stand beside everything else.

Some of Liger's autograd functions write into tensors of others: RMSNorm's and rotary's backward into the gradient that they
are given, rotary's forward into its input, SwiGLU's backward into what it has saved. Here none writes into a gradient that
it was given, and what else is overwritten is told to autograd, so that it is an error if somebody needs it still.
Nothing of this package changes a module's class or a global of transformers or Liger.
Legend of shapes: B rows of the batch, T tokens, D normalised or head dimension, I intermediate, H heads, K key heads,
V vocabulary, N label tokens.
"""
