"""Of detections close to one another, the best (text: "CPPDetectionWindowNonMaximaSuppressionKernel")."""

from armillary.compute import CPPDetectionWindowNonMaximaSuppressionKernel, DetectionWindow

windows = [
    DetectionWindow(10, 10, 64, 128, idx_class=0, score=0.7),
    DetectionWindow(14, 12, 64, 128, idx_class=0, score=0.9),
    DetectionWindow(12, 11, 64, 128, idx_class=1, score=0.4),  # another class
    DetectionWindow(90, 10, 64, 128, idx_class=0, score=0.5),
]
kernel = CPPDetectionWindowNonMaximaSuppressionKernel()
kernel.configure(windows, 32.0)
kernel.run()
for window in windows:
    print(window.x, window.y, window.idx_class, window.score)

# Output:
# 14 12 0 0.9
# 90 10 0 0.5
# 12 11 1 0.4
