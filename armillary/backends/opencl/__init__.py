"""The OpenCL back end: kernels in OpenCL C. `backend` is its record; code: `codegen/opencl/`."""
