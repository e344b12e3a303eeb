"""Linear attention with feature map elu + 1, beside causal softmax attention: the operator of dynamic routing."""
