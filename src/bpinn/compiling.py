"""Options of XLA's compiler for the programs of this package."""

# XLA's newer emitters of fused loops take up to twice as long to compile as its older ones. A run is short, so most of
# its seconds are compilation, and at these sizes the code is not slower.
FUSED = {"xla_cpu_use_fusion_emitters": False}
# A block is one chain on one core; threads inside a block would compete for that core. The library of fused matrix
# products (ynn) has threads of its own and is slower at these sizes.
BLOCK = {**FUSED, "xla_cpu_multi_thread_eigen": False, "xla_cpu_experimental_ynn_fusion_type": ""}
# For what runs once or twice, so that compile time matters more than run time.
QUICKLY = {**FUSED, "xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
