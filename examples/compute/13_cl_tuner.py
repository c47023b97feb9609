"""The tuner: enabled, it tries sizes of work-groups; disabled, it takes those of a file (text: "OpenCL Tuner")."""

from armillary.compute import BorderMode, CLGaussian3x3, CLImage, CLScheduler, CLTuner, CLTunerMode, Format, TensorInfo

tuner = CLTuner()
tuner.set_tuner_mode(CLTunerMode.RAPID)  # else it tries 28
CLScheduler.get().default_init(tuner)
src, dst, gauss = CLImage(), CLImage(), CLGaussian3x3()
for image in (src, dst):
    image.allocator().init(TensorInfo(96, 64, Format.U8))
gauss.configure(src, dst, BorderMode.REPLICATE)
src.allocator().allocate()
dst.allocator().allocate()
gauss.run()  # the first run measures each LWS
kernel = gauss.kernel().config_id()
seconds, best = tuner.measured(kernel), tuner.lws_table()[kernel]
print(len(seconds), "LWS were tried; the best is no slower:", seconds[best] <= seconds[64, 1, 1])
tuner.save_to_file("acl_tuner.csv")

disabled = CLTuner(tune_new_kernels=False)
disabled.load_from_file("acl_tuner.csv")
CLScheduler.get().set_tuner(disabled)
gauss.run()  # with the LWS of the file
CLScheduler.get().sync()
print("from the file:", disabled.lws_table()[kernel] == best, "measured:", len(disabled.measured(kernel)))
CLScheduler.get().set_tuner(None)

# Output:
# 6 LWS were tried; the best is no slower: True
# from the file: True measured: 0
