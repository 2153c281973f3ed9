"""What tests and benchmarks need to know of one operator."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .samples import ErrorSample, Sample, Tolerance


class OpInfo(NamedTuple):
    """What tests and benchmarks need to know of one operator: calls of it, and what to compare it with.

    The name is that of ``torch.testing``. A library's module ``opinfos`` has, in the mapping ``OP_INFOS``, one for each
    operator that needs one, by the operator's name; that of ``name.out`` follows from that of ``name``.

    Args:
        samples: ``samples(device, dtype, requires_grad)`` gives the :class:`Sample` calls that tests and benchmarks
            make. Element-wise operators need none.
        errors: ``errors(device)`` gives calls that must be refused, as :class:`ErrorSample`.
        measured: as ``samples``, the calls that ``bench`` makes instead, in float32 and bfloat16: of the sizes that
            users have. Operators of the library that do not declare it are not measured then, unless they are named.
            With ``--quick`` it makes the first of ``samples``.
        swept: ``swept(make, rows, width)`` gives two functions without arguments, of which the first calls the operator
            as users do and the second a baseline, for ``bench --sweep``; or None where there is no such call.
            ``make(rows, width)`` makes an operand, in the dtype and layout that is measured.
        baselines: by name, other ways to compute the same, which ``bench`` times against the operator: functions that
            are called like the reference. One that gives other results, or fails, is left out with a note.
        dtypes: of the samples.
        index_arguments: names of the arguments whose values are indices, sizes, coordinates or anything else that says
            where to look and is no number to compute with, in integers or in floating point, such as ``("boxes",)``.
            Checks that change the values of samples leave these as they are.
        tolerance: how far results may be from the reference's, by dtype, where that is not the rounding of the dtype.
    """

    samples: Callable[..., Iterable[Sample]] | None = None
    errors: Callable[..., Iterable[ErrorSample]] | None = None
    measured: Callable[..., Iterable[Sample]] | None = None
    swept: Callable[..., tuple[Callable[[], Any], Callable[[], Any]] | None] | None = None
    baselines: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    dtypes: tuple[Any, ...] | None = None
    index_arguments: tuple[str, ...] = ()
    tolerance: Mapping[Any, Tolerance] = MappingProxyType({})
