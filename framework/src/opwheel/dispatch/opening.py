"""Opens an operator library, in the order in which everything about it happens."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._import_hooks import without_collections
from .._once import once
from ..registry.errors import ForeignOperatorError
from ..registry.library import OperatorLibrary
from .declaration import Operator
from .derivatives import Derivatives
from .derivatives.notation import describe, document
from .functions import Functions, make_functions
from .overload import Overload
from .registration import register

if TYPE_CHECKING:
    from ..foreign import ForeignKernels


class Library(OperatorLibrary):
    """An operator library that is open: its backends, and what was made of its declarations.

    Attributes:
        package: the Python package, whose name is also the operators' namespace: ``torch.ops.<package>``.
        version: of its distribution.
        overloads: what is registered for each overload, by name.
        functions: the public functions by name, which the package has as its own.
    """

    overloads: Mapping[str, Overload]
    functions: Functions

    def __init__(self, package: str, operators: Iterable[Operator], distribution: str, version: str) -> None:
        self.package = package
        self.version = version
        self.folder = Path(str(sys.modules[package].__file__)).parent
        self._foreign_kernels = once(self._new_foreign_kernels)
        super().__init__(
            package,
            operators=[operator.name for operator in operators],
            schema_library=self.folder / f"lib{package}_schema.so",
            entry_point_group=f"{package}.backends",
            plugins_file=self.folder / "plugins.toml",
            distribution=distribution,
        )

    @property
    def foreign(self) -> ForeignKernels:
        """The library's kernels for operators that others define, which are off until they are switched on."""
        return self._foreign_kernels()

    def _new_foreign_kernels(self) -> ForeignKernels:
        from ..foreign import ForeignKernels  # most programs have none

        return ForeignKernels(self, version=self.version)

    def load_backends(self) -> None:
        super().load_backends()
        if self.policy.foreign == "on":
            try:
                self.foreign.on()
            except ForeignOperatorError as error:  # the library itself works, and what is not on is PyTorch's own
                warnings.warn(f"{self.namespace}: {error}", RuntimeWarning, stacklevel=2)

    def get_include(self) -> str:
        """The folder of the library's own headers, for ``-I``: the list of its operators and their functors."""
        return str(self.folder / "include")

    def invariant(self, operator: str, device_type: str) -> tuple[str, ...]:
        """What the bits of an operator's results do not depend on here: its claims, as far as the backend keeps them.

        Args:
            operator: such as ``"norm"``.
            device_type: of the tensors.

        Returns:
            Names of claims in ``Operator(invariant=...)``; none where no backend has a kernel of its own.
        """
        from .invariance import held  # few programs ask

        return held(self.overloads[operator], self.explain(operator, device_type).winner)

    def require(self, *names: str, invariant: str | Iterable[str] | Mapping[str, Iterable[str]] = ()) -> None:
        """Check that backends are loaded, and what the bits of their results do not depend on.

        Args:
            names: of the backends.
            invariant: a name of a claim in ``Operator(invariant=...)`` or several: every operator that a backend serves
                keeps those that the library claims for it. A dict from names of operators to names of claims: each
                backend serves these operators, and they keep these.

        Raises:
            BackendUnavailableError: naming the first backend that is not loaded, why, and what to do; or the operators
                that do not keep a claim.
            ValueError: the library has no such operator, there is no such claim, or no backend is named.
        """
        super().require(*names)
        if invariant:
            from .invariance import check_required

            if not names:
                raise ValueError("require(invariant=...) names no backend; name those that have to keep the claims")

            statuses = self.backends()
            check_required([statuses[name] for name in names], self.overloads, invariant)

    def decompositions(self) -> dict[Any, Callable[..., Any]]:
        """The operators in terms of ATen, for ``ExportedProgram.run_decompositions``."""
        from .decompositions import decomposition_table  # most programs export nothing

        return decomposition_table(self.overloads.values())

    def derivatives(self) -> str:
        """What programs without Python know of the operators' derivatives; the build puts it into the schema library.

        In the notation of ``csrc/autograd/notation.h``. Formulas that are Python functions are not in it.
        """
        differentiable = [one for one in self.overloads.values() if one.tensor_positions]

        def described(one: Overload) -> str:
            recorded = None if one.training is None else one.training.qualified_name
            return describe(Derivatives(one), reference=None, recorded=recorded)

        return document(map(described, differentiable))


def open_library(package: str, operators: Iterable[Operator], *, distribution: str, version: str) -> Library:
    """Open the operator library that a Python package is; called once, by its ``__init__.py``.

    The operators are there afterwards, without kernels: :meth:`Library.load_backends`, the last line of the package's
    ``__init__.py``, loads the backends, whose code may import the package.

    Its folder has, by convention, the schema library ``lib<package>_schema.so``, ``plugins.toml`` and ``include/``. Its
    backends are the entry points of the group ``<package>.backends``, its environment variables begin with
    ``<PACKAGE>_``.

    Args:
        package: ``__name__`` of the package.
        operators: a declaration for each operator of the schema library.
        distribution: the wheel that the package comes in.
        version: of the distribution.

    Raises:
        ImportError: the schema library is missing, or something else in this process has defined the namespace already.
        ValueError: a schema without a declaration, or the other way round, or a declaration that does not fit.
        LockError: what is installed differs from the lock file.
    """
    operators = tuple(operators)
    with without_collections():
        library = Library(package, operators, distribution, version)

        # 1. The operators exist, with the schemas of the list.
        library.load_schemas()

        # 2. They have shapes, derivatives, vmap rules, autocast rules, and an answer where no backend has a kernel.
        library.overloads = register(library, operators)

        # 3. They have functions in Python.
        library.functions = make_functions(package, library.overloads)
    return library
