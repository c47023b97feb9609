"""Schedulers: one of the library's by its type, and one of one's own (text: "Scheduler")."""

from armillary.compute import CPPScheduler, IKernel, IScheduler, OMPScheduler, Scheduler, SingleThreadScheduler

print("by default:", Scheduler.get_type().value)
for kind in (Scheduler.Type.ST, Scheduler.Type.CPP, Scheduler.Type.OMP):
    if Scheduler.is_available(kind):
        Scheduler.set(kind)  # Sets the active scheduler by its type
        print(Scheduler.get_type().value, type(Scheduler.get()).__name__)
print(Scheduler.get() is OMPScheduler.get(), SingleThreadScheduler.get() is SingleThreadScheduler.get())


class Custom(CPPScheduler):
    """A pool of threads that says what it runs."""

    def schedule(self, kernel: IKernel, split_dimension: int) -> None:
        """As the pool."""
        print("scheduling", type(kernel).__name__, "along", split_dimension)
        super().schedule(kernel, split_dimension)


class Wrapped:
    """A scheduler needs three methods, no base class."""

    def __init__(self, inner: IScheduler) -> None:
        self.schedule, self.set_num_threads, self.num_threads = inner.schedule, inner.set_num_threads, inner.num_threads


Scheduler.set(Wrapped(Custom()))  # Sets the user defined scheduler and makes it the active scheduler
print(Scheduler.get_type().value)
Scheduler.get().set_num_threads(2)
print(Scheduler.get().num_threads())
Scheduler.get().set_num_threads(0)  # as many as the hardware has
print(Scheduler.get().num_threads() >= 1)

# Output:
# by default: CPP
# ST SingleThreadScheduler
# CPP CPPScheduler
# OMP OMPScheduler
# True True
# CUSTOM
# 2
# True
