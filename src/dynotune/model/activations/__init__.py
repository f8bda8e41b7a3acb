"""What a forward pass leaves for its backward pass, and what else can be done than to keep all of it on the device.

`layers.py` computes whole layers again, `remade.py` the results of cheap operations only, `host.py` has what is kept in
host memory meanwhile. All give the bits that keeping gives.
"""
