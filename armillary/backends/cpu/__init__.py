"""The CPU back end: LLVM or C for one thread's window of each loop. `backend` is its record.

graph/ (its passes over graphs: layouts, algorithms, storage of weights), cost/ (what a register tile takes); a folder
for each operator with its algorithms: conv2d/, gemm/, attention/, pool/, reduce/, and elementwise/ with the schedule of
any fused function. Shared by schedules: loops, access, contiguous. Facts of CPUs: target/cpu.py, target/cpu_table.py.
"""
