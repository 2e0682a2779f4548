"""The planner's constants, each fitted on real vLLM 0.26.0 on two H100 SXM (serving/README.md, Calibration).

Every run was made once on one kind of host, so these are means of few rows; `tests/serving/planner/test_calibration.py`
holds the rows and the error that the planner is allowed. Where another GPU is planned, the same fractions of its data
sheet are assumed.
"""

# --- Memory, GiB unless said otherwise ---------------------------------------------------------------------------
LOAD_SLACK_GIB = 0.05  # allocator rounding over the exact weight bytes: 6.04 for 5.98, 15.0 for 14.96, 33.87 for 33.83
ACTIVATION_BASE_GIB = 0.30  # what a cold compile leaves beside the largest step; 0.05-0.08 with a warm compile cache
NON_TORCH_ONE_GPU_GIB = 0.22
NON_TORCH_PARALLEL_GIB = 0.06
GRAPH_BASE_GIB = 0.456  # 51 CUDA graphs, up to 512 tokens; on top of --gpu-memory-utilization
GRAPH_GIB_PER_LAYER_AND_HIDDEN = 4e-6
GRAPH_NCCL_GIB = 1.12  # graphs that hold NCCL's buffers instead of vLLM's own all-reduce
OUTSIDE_GIB = 2.1  # CUDA context and cached blocks when ready, outside of vLLM's own account
OUTSIDE_TENSOR_PARALLEL_GIB = 1.3  # communication buffers, more of the same
OUTSIDE_NCCL_GIB = 0.85
AFTER_LOAD_GIB = 0.9  # grows by this under load on one GPU; not seen with tensor parallel
KV_BLOCK_TOKENS = 16

# --- One decode step ---------------------------------------------------------------------------------------------
BANDWIDTH_PART = 0.823  # of the data sheet's bandwidth, while weights and KV cache are read (2.76 of 3.35 TB/s)
LAYER_US = 31.8  # launch and small kernels of a layer
PIPELINE_HOP_US = 130.0  # hand-over to the next stage over TCP
SEQUENCE_US = 20.0  # scheduling, sampling and detokenising of one more sequence in a step

# --- Prefill -----------------------------------------------------------------------------------------------------
COMPUTE_PART = 0.76  # of the data sheet's dense bf16 TFLOP/s
COMPUTE_PART_FP8 = 1.01  # FP8 matrices, still against bf16's figure
FIRST_TOKEN_BASE_MS = 13.0  # HTTP, tokenising, one eager step

# --- Many streams ------------------------------------------------------------------------------------------------
PIPELINE_BUBBLE = 0.80  # part of the ideal that pipeline stages keep when prefill and decode mix
FRONT_END_TOKENS_PER_S = 9_700.0  # one HTTP front-end process streams no more than this; 4 processes: 11,871 of 3B
FRONT_END_KNEE = 4.0  # how sharply: 8B TP 2 had reached 7,095 and PP 2 7,662 of a predicted 9,900 and 9,000
FRONT_ENDS_WHEN_FAST = 4

# --- Start of a server, seconds ----------------------------------------------------------------------------------
IMPORT_S = 23.0  # every process imports torch and vLLM afresh: API server, then engine, then workers
INSPECT_MODEL_S = 21.0  # cold only
DEVICE_S = 3.0
COMPILE_BASE_S = 20.5
COMPILE_PER_LAYER_ABOVE_32_S = 1.95  # the one deep row is 70B in FP8: 114 s for 80 layers
COMPILE_WARM_S = 4.3
PROFILE_S = 2.0
PROFILE_PARALLEL_S = 2.0
GRAPH_S_PER_LAYER = 0.16
GRAPH_TENSOR_PARALLEL_S = 3.0
FIRST_KERNELS_S = 17.0  # Triton and cuBLAS first use, cold only
FIRST_KERNELS_PARALLEL_S = 4.0
FIRST_KERNELS_WARM_S = 1.0
API_S = 1.5
