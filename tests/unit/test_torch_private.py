"""Each private name of PyTorch that muladd uses, and what breaks when it moves."""

import ctypes
import shutil
import sys
import sysconfig
import threading
import time
from pathlib import Path

import muladd  # noqa: F401
import pytest
import torch
import torch._inductor.lowering  # before operators of tests are gone, which its tables cannot have
from opwheel._torch import private
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.autograd import forward_ad
from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


def test_below_autograd():
    """Without it autograd kernels would call themselves for ever."""
    x = torch.ones(2, requires_grad=True)
    with private.below_autograd():
        assert not (x * 2).requires_grad


def test_below_version_bump():
    """Without it the kernel that counts modifications would call itself for ever."""
    with private.below_version_bump():
        pass


def test_keysets_after_a_key():
    """Without them a kernel cannot pass the call on to the next key."""
    keys = torch._C._dispatch_keys(torch.ones(2, requires_grad=True))
    assert keys.has(torch._C.DispatchKey.AutogradCPU)
    assert not (private.after_autograd(keys)).has(torch._C.DispatchKey.AutogradCPU)
    assert not (private.after_version_bump(keys)).has(torch._C.DispatchKey.ADInplaceOrView)


def test_has_memory():
    """Without it a kernel in Python reads behind a null pointer."""
    freed = torch.ones(5)[2:]
    freed.untyped_storage().resize_(0)
    assert not private.has_memory(freed)
    assert not private.has_memory(torch._to_functional_tensor(torch.ones(5)[2:]))
    assert private.has_memory(torch.ones(5)[2:])


def test_privateuse1_name():
    """Without it out of memory on a device of a package is another error than PyTorch's."""
    assert private.privateuse1_name() == "privateuseone"


def test_register_placements():
    """Without it DTensor does not know an operator, or remembers of a call less than its placements depend on."""
    library = torch.library.Library("opwheel_placements", "DEF")
    library.define("f(Tensor x, float factor) -> Tensor")
    library.impl("f", lambda x, factor: x * factor, "CompositeExplicitAutograd")
    asked = []

    def choose(mesh, args, kwargs):
        asked.append((mesh, args[0].shape, args[1], kwargs))
        return [[Replicate(), Replicate()], [Shard(0), Shard(0)]], lambda inputs, outputs: len(inputs) == len(outputs)

    private.register_placements(torch.ops.opwheel_placements.f.default, choose, 1, [])
    torch.distributed.init_process_group("fake", rank=0, world_size=2)
    try:
        x = DTensor.from_local(torch.ones(2, 3), init_device_mesh("cpu", (2,)), [Shard(0)])
        for factor in (2.0, 3.0, 2.0):
            result = torch.ops.opwheel_placements.f(x, factor)
            assert result.placements == (Shard(0),)
            assert torch.equal(result.to_local(), torch.full((2, 3), factor))
        assert asked == [((2,), (4, 3), factor, {}) for factor in (2.0, 3.0)]
        private.register_placements(torch.ops.opwheel_placements.f.default, lambda *_: ([], None), 1, [])
        words = "no way to share it out leaves what it writes to where it is|no valid sharding strategy"  # PyTorch 2.14
        with pytest.raises(RuntimeError, match=words):
            torch.ops.opwheel_placements.f(x, 4.0)
    finally:
        torch.distributed.destroy_process_group()
        library._destroy()


def test_calls_on_dtensors():
    """Without them a reduced dimension that is sharded is gathered, or results of parts have no whole shape."""
    library = torch.library.Library("opwheel_calls", "DEF")
    library.define("f(Tensor x, float factor) -> Tensor")
    library.impl("f", lambda x, factor: x * factor, "CompositeExplicitAutograd")
    op = torch.ops.opwheel_calls.f.default

    def choose(mesh, args, kwargs):
        return [[Replicate(), Replicate()], [Shard(0), Shard(0)]], lambda inputs, outputs: True

    def call(args, kwargs):
        return args[0] if args[1] == 2 else NotImplemented

    private.register_placements(op, choose, 1, [])
    private.register_call(library, op, call, DTensor)
    torch.distributed.init_process_group("fake", rank=0, world_size=2)
    try:
        x = DTensor.from_local(torch.ones(2, 3), init_device_mesh("cpu", (2,)), [Shard(0)])
        assert op(x, 2.0) is x
        other = op(x, 3.0)
        assert other.placements == (Shard(0),)
        assert torch.equal(other.to_local(), torch.full((2, 3), 3.0))
        (whole,) = private.results_of(op, (x, 3.0), {})
        assert (tuple(whole.shape), tuple(whole.stride), whole.dtype) == ((4, 3), (3, 1), torch.float32)
    finally:
        torch.distributed.destroy_process_group()
        library._destroy()


def test_checkpoint_policies_see():
    """Without it a policy does not keep the operator that is called in the place of the one that it names."""
    called, training = torch.ops.aten.sin.default, torch.ops.aten.cos.default
    x, asked = torch.ones(2, requires_grad=True), []

    def policy(context, op, *args, **kwargs):
        asked.append(op)
        return op is called

    def context():
        return create_selective_checkpoint_contexts(policy)

    def function(value):
        with private.checkpoint_policies_see(called, training):
            return value.cos()

    checkpoint(function, x, use_reentrant=False, context_fn=context)
    assert asked == [called]
    checkpoint(torch.cos, x, use_reentrant=False, context_fn=context)
    assert asked == [called, training]


def test_functorch_is_active():
    """Without it torch.func.grad of an operator fails, and torch.func.jvp is silently wrong."""
    seen = []
    torch.func.grad(lambda x: (seen.append(private.functorch_is_active()), x.sum())[1])(torch.ones(2))
    assert seen == [True]
    assert not private.functorch_is_active()


def test_forward_ad_is_active():
    """Without it forward-mode derivatives are silently zero."""
    assert not private.forward_ad_is_active()
    with forward_ad.dual_level():
        assert private.forward_ad_is_active()


def test_keyset():
    """Without it an operator without tensors would not reach the backend's kernel."""
    keys = private.keyset("CPU")
    assert keys.has(torch._C.DispatchKey.CPU)
    assert not keys.has(torch._C.DispatchKey.AutogradCPU)


def test_operation():
    """Without it a call of a public function would cost as much as one of torch.ops."""
    x = torch.ones(2)
    assert private.operation(torch.ops.aten.neg.default)(x).tolist() == [-1.0, -1.0]
    assert private.operation(torch.ops.aten.neg.out)(x, out=x) is x


def test_tensor_address():
    """Without it nothing would say that a new PyTorch's tensors begin otherwise than the functions in C++ read them."""
    x = torch.ones(2)
    assert private.tensor_address(x) == private.tensor_address(x) != private.tensor_address(x.detach())


def test_redispatch():
    """Without it the kernel at the Autograd key could not call what comes after it."""
    negative = private.redispatch(torch.ops.aten.neg.default)
    assert negative(private.keyset("CPU"), torch.ones(2)).tolist() == [-1.0, -1.0]


def test_any_requires_grad():
    """Without it every call would pay for recording a gradient, or none would record one."""
    assert private.any_requires_grad(torch.ones(2), torch.ones(2, requires_grad=True))
    assert not private.any_requires_grad(torch.ones(2))


def test_without_dispatch_key():
    """Without it autocast kernels would call themselves for ever."""
    with torch.autocast("cpu", dtype=torch.bfloat16), private.without_dispatch_key("AutocastCPU"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_view_may_be_modified():
    """Without it an in-place call on one of several views would fail only after it has written."""
    base = torch.ones(4, requires_grad=True) * 1
    assert private.view_may_be_modified(base[1:])
    assert not private.view_may_be_modified(base.unbind(0)[0])
    with torch.no_grad():
        view = base[1:]
    assert not private.view_may_be_modified(view)


def test_base_of():
    """Without it an in-place call on a view of a leaf would fail only after it has written."""
    base = torch.ones(4)
    assert private.base_of(base[1:]) is base
    assert private.base_of(base) is None


def test_memory_of_tensors():
    """Without them gradients of in-place calls would be taken from what was just overwritten."""
    x = torch.ones(4)
    assert private.has_storage(x)
    assert private.address(x) == x.data_ptr()
    assert private.is_alias(x[:1], x[1:].detach())
    assert not private.is_alias(x, x.clone())
    assert private.address(torch.ones(4, device="meta")) == 0
    seen = []
    torch.func.grad(lambda y: (seen.append(private.has_storage(y)), y.sum())[1])(x)
    assert seen == [False]


def test_parse_schema():
    """Without it the declarations cannot be matched with the schemas."""
    schema = private.parse_schema("f(Tensor x, float c, *, Tensor(a!) out) -> Tensor(a!)")
    assert [argument.name for argument in schema.arguments] == ["x", "c", "out"]
    assert [argument.kwarg_only for argument in schema.arguments] == [False, False, True]
    assert len(schema.returns) == 1


def test_dispatcher_queries():
    """Without them the registry cannot verify what a backend registered."""
    assert private.has_kernel("muladd::muladd", "CPU")
    assert not private.has_kernel("muladd::muladd", "CUDA")
    assert private.schema_of("muladd::muladd.out") is not None
    assert private.schema_of("muladd::nothing") is None
    assert "muladd::muladd.out" in private.operators_of("muladd")
    assert {"aten::add.Tensor", "muladd::muladd.out"} <= set(private.every_operator())
    assert private.overload_for("aten::add", (torch.ones(1), torch.ones(1)), {}) == "Tensor"


def test_register_fake():
    """Without it nothing compiles: there would be no shape-only kernels."""
    library = torch.library.Library("muladd_fake_test", "DEF")
    library.define("f(Tensor x) -> Tensor")
    private.register_fake(library, "muladd_fake_test::f", lambda x: x.new_empty(7))
    with FakeTensorMode():
        assert torch.ops.muladd_fake_test.f(torch.ones(2)).shape == (7,)
    assert torch.ops.muladd_fake_test.f(torch.ones(2, device="meta")).shape == (7,)
    library._destroy()


def test_compiler_is_functionalizing():
    """Without it a compiled in-place call with a gradient returns another tensor than the one that it overwrites."""
    assert not private.compiler_is_functionalizing()
    with FunctionalTensorMode():
        assert private.compiler_is_functionalizing()


def test_is_functional_view():
    """Without it an empty out= that is part of another tensor is resized into what other tensors do not see."""
    wrapper = torch._to_functional_tensor(torch.ones(2))
    assert not private.is_functional_view(wrapper)
    assert private.is_functional_view(wrapper[:0])


def test_replace_functional():
    """Without it in-place variants would not compile."""
    x = torch._to_functional_tensor(torch.ones(2))
    y = torch._to_functional_tensor(torch.zeros(2))
    private.replace_functional(x, y)
    assert torch.equal(torch._from_functional_tensor(x), torch.zeros(2))


def test_before_functionalization():
    """Without it inductor removes copies that an operator which writes in place needs."""
    library = torch.library.Library("opwheel_private_copies", "DEF")
    library.define("f_(Tensor(a!) x, Tensor y) -> ()")
    library.impl("f_", lambda x, y: (x.add_(y), None)[1], "CompositeExplicitAutograd")
    op = torch.ops.opwheel_private_copies.f_.default
    private.before_functionalization(op, lambda x, y: ((x, y * 2), {}))
    x, y = torch.zeros(2), torch.ones(2)
    torch.compile(lambda x, y: op(x, y), backend="aot_eager")(x, y)
    assert x.tolist() == [2.0, 2.0]
    op(x, y)
    assert x.tolist() == [3.0, 3.0]


def test_destroy_library():
    """Without it a Python backend that fails halfway would leave kernels behind."""
    library = torch.library.Library("muladd_private_test", "DEF")
    library.define("f(Tensor x) -> Tensor")
    assert private.schema_of("muladd_private_test::f") is not None
    private.destroy_library(library)
    assert private.schema_of("muladd_private_test::f") is None


def test_define_operator_and_register_kernel():
    """Without them one would not know whether what plugins register can be seen, nor could one block it."""
    definition = private.define_operator("opwheel_private_test::f(Tensor x) -> Tensor")
    kernel = private.register_kernel("opwheel_private_test::f", "CPU", lambda x: x + 1)
    assert torch.ops.opwheel_private_test.f(torch.ones(1)).tolist() == [2.0]
    del kernel, definition
    assert private.schema_of("opwheel_private_test::f") is None


def test_batched():
    """Without it vmap of every operator fails."""
    seen = []

    def rule(info, in_dims, x):
        seen.append((info.batch_size, in_dims))
        return x * 2, in_dims[0]

    library = torch.library.Library("opwheel_private_batched", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: private.batched(rule, lambda x: x, (x,)), "FuncTorchBatched")
    x = torch.ones(3, 2)
    assert torch.equal(torch.vmap(torch.ops.opwheel_private_batched.f, in_dims=1, out_dims=1)(x), x * 2)
    assert seen == [(2, (1,))]


def test_default_of():
    """Without it operators with default values of some types are called with numbers in their place."""
    text = "f(ScalarType a=float, Device b='cpu', Layout? c=strided, MemoryFormat d=contiguous_format, int e=3) -> ()"
    defaults = [private.default_of(argument) for argument in private.parse_schema(text).arguments]
    assert defaults == [torch.float32, torch.device("cpu"), torch.strided, torch.contiguous_format, 3]


def test_below_autograd_and_autocast():
    """Without it a kernel's calls of other operators are recorded, and autocast changes their dtypes."""
    x = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
        with private.below_autograd_and_autocast():
            assert (x @ x).dtype is torch.float32
            assert not (x @ x).requires_grad


def test_schema():
    """Without it nothing knows the arguments of overloads that others have registered."""
    assert [argument.name for argument in private.schema(torch.ops.aten.neg.out).arguments] == ["self", "out"]


def test_storage_address():
    """Without it the kit cannot tell whether a result shares memory with an argument."""
    x = torch.ones(4)
    assert private.storage_address(x.untyped_storage()) == private.storage_address(x[1:].untyped_storage())
    assert private.storage_address(x.untyped_storage()) != private.storage_address(x.clone().untyped_storage())


def test_functional_wrappers():
    """Without them the kit cannot call kernels with functional tensors."""
    x = torch.ones(2)
    wrapper = private.functional_wrapper(x)
    assert private.behind_functional_wrapper(wrapper) is not wrapper
    assert torch.equal(private.behind_functional_wrapper(wrapper), x)
    assert private.behind_functional_wrapper(x) is x


def test_layers():
    """Without it memory that a wrapper of torch.func hides is not compared."""
    seen = []
    torch.func.grad(lambda y: (seen.extend(private.layers(y)), y.sum())[1])(x := torch.ones(2))
    assert len(seen) == 2
    assert private.is_wrapped(seen[0])
    assert private.is_alias(seen[1], x)
    assert [*private.layers(x)] == [x]


def test_any_autocast_is_enabled():
    """Without it calls are not cast under torch.autocast."""
    assert not private.any_autocast_is_enabled()
    with torch.autocast("cpu", torch.bfloat16):
        assert private.any_autocast_is_enabled()


def test_set_operation():
    """Without it calls of torch.ops are slower than those of the public functions."""
    library = torch.library.Library("opwheel_private_operation", "DEF")
    library.define("f(Tensor x) -> Tensor")
    op = torch.ops.opwheel_private_operation.f.default
    private.set_operation(op, lambda x: x + 1)
    assert op(torch.ones(1)).item() == 2.0


def test_graphs_that_write():
    """Without these inductor makes copies that are not needed, or leaves out those that are."""

    def function(x, y):
        written = torch.empty_like(x)
        torch.ops.aten.add.out(x, y, out=written)
        return written

    with FakeTensorMode() as mode:
        x, y = (mode.from_tensor(torch.ones(2)) for _ in range(2))
        graph = make_fx(function)(x, y).graph
    new, writing = (next(node for node in graph.nodes if name in str(node.target)) for name in ("empty", "add"))
    assert private.storages_written_by(writing) == {private.storage_of_node(new)} != {None}
    assert private.storages_written_by(new) == set()
    assert private.storage_of_node(next(node for node in graph.nodes if node.op == "output")) is None


def test_tensors_of_functional_graphs():
    """Without these a copy that inductor keeps is not put where an operator's memory is its own."""
    seen = []
    library = torch.library.Library("opwheel_private_functional", "DEF")
    library.define("f_(Tensor(a!) x) -> ()")
    library.impl("f_", lambda x: (x.add_(1), None)[1], "CompositeExplicitAutograd")
    op = torch.ops.opwheel_private_functional.f_.default

    def look(x):
        seen.append((isinstance(x, private.functional_tensor()), private.made_in_graph(x) is not None))
        return (x,), {}

    private.before_functionalization(op, look)

    def function(x):
        op(x)
        op(made := x * 2)
        return made

    torch.compile(function, backend="aot_eager")(torch.ones(2))
    assert (True, False) in seen
    assert (True, True) in seen


def test_decompositions():
    """Without them torch.compile does not fuse element-wise operators."""
    library = torch.library.Library("opwheel_private_decomposed", "DEF")
    library.define("f(Tensor x) -> Tensor")
    op = torch.ops.opwheel_private_decomposed.f.default
    table = private.decompositions()
    table[op] = lambda x: x + 1
    private.decompositions_changed()
    assert op in torch._inductor.decomposition.select_decomp_table()
    del table[op]
    private.decompositions_changed()
    assert op not in torch._inductor.decomposition.select_decomp_table()


def test_change_cache_key_tag():
    """Without it compiled programs that are kept on disk would be used with other declarations than their own."""
    config, seen = torch.compiler.config, []
    before = config.cache_key_tag
    for change, is_there in ((lambda tag: f"{tag} own", True), (lambda tag: tag.removesuffix(" own"), False)):
        private.change_cache_key_tag(change)
        other = threading.Thread(target=lambda: seen.append(config.cache_key_tag))
        other.start()
        other.join()
        assert [config.cache_key_tag.endswith(" own"), seen.pop().endswith(" own")] == [is_there] * 2
    with config.patch(cache_key_tag="somebody's"):
        private.change_cache_key_tag(lambda tag: f"{tag} own")
        assert config.cache_key_tag == "somebody's own"
    private.change_cache_key_tag(lambda tag: tag.removesuffix(" own"))
    assert config.cache_key_tag == before


def test_trace_instead():
    """Without it torch.compile breaks the graph at every call of a public function."""
    private.trace_instead(time.monotonic_ns, lambda: 7)
    compiled = torch.compile(lambda x: x + time.monotonic_ns(), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 7.0


def test_fake_mode_with_unknown_sizes():
    """Without it kernels in Python whose results' sizes depend on values are not checked."""
    with private.fake_mode_with_unknown_sizes() as mode:
        found = mode.from_tensor(torch.ones(3)).nonzero()
    assert isinstance(found.shape[0], torch.SymInt)


def test_has_triton():
    """Without it the kit compiles for devices that inductor cannot compile for."""
    assert private.has_triton() == torch.utils._triton.has_triton()


def test_what_is_defined():
    """Without these libraries would define operators and namespaces of others again."""
    assert private.is_defined("aten::neg.out")
    assert not private.is_defined("aten::neg.nothing")
    assert private.is_namespace_defined("muladd")
    assert not private.is_namespace_defined("opwheel_private_nobody")
    library = torch.library.Library("opwheel_private_python", "DEF")
    library.define("f(Tensor x) -> Tensor")
    assert private.operators_defined_in_python("opwheel_private_python") == ["opwheel_private_python::f"]
    assert private.operators_defined_in_python("aten") == []


def test_packet_and_name():
    """Without it nobody would find what stands for an operator, before it stands for it."""
    assert private.packet_and_name("aten::neg") == (torch.ops.aten.neg, "default")
    assert private.packet_and_name("aten::neg.out") == (torch.ops.aten.neg, "out")


def test_devices_and_keys():
    """Without these kernels would be looked for at other keys than those where they are registered."""
    assert private.dispatch_key_of("cpu") == "CPU"
    assert private.dispatch_key_of("cuda") == "CUDA"
    assert private.dispatch_key_of("no device") is None
    assert private.dispatch_key_of("a_device_of_a_package") == "PrivateUse1"
    assert private.why_no_device("cpu") == ""
    assert "knows no device 'nothing' in this process: Expected one of cpu, cuda" in private.why_no_device("nothing")
    keys = private.dispatch_keys()
    assert keys["CPU"] == torch._C.DispatchKey.CPU
    assert {"CUDA", "XPU", "AutogradCPU", "AutocastCPU", "FuncTorchBatched"} <= set(keys)
    assert private.has_fallback(keys["Python"])
    assert not private.has_fallback(keys["CPU"])


def test_register_kernel():
    """Without it a plugin's kernel could not be covered by one that raises."""
    library = torch.library.Library("opwheel_private_covered", "DEF")
    library.define("f(Tensor x) -> Tensor")
    kept = private.register_kernel("opwheel_private_covered::f", "CPU", lambda x: x + 1)
    assert torch.ops.opwheel_private_covered.f(torch.zeros(1)).item() == 1.0
    del kept
    assert not private.has_kernel("opwheel_private_covered::f", "CPU")


def test_register_lowering():
    """Without it inductor copies what an operator writes to, needed or not."""
    library = torch.library.Library("opwheel_private_lowered", "DEF")
    library.define("f(Tensor x, int n) -> Tensor")
    op = torch.ops.opwheel_private_lowered.f.default
    private.register_lowering(op, lambda node: False)
    assert op in torch._inductor.lowering.lowerings


def test_close_shared_library(tmp_path):
    """Without it a backend that was refused stays open."""
    extension = next(Path(sysconfig.get_config_var("DESTSHARED")).glob("_bisect.*.so"))
    copy = shutil.copy(extension, tmp_path)
    opened = ctypes.CDLL(copy)
    assert str(copy) in Path("/proc/self/maps").read_text()
    private.close_shared_library(opened)
    assert str(copy) not in Path("/proc/self/maps").read_text()


def test_what_plugins_register():
    """Without these nothing says what a plugin has registered."""
    library = torch.library.Library("opwheel_private_seen", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x, "CPU")
    assert "CPU: registered at" in private.kernel_registrations("opwheel_private_seen::f")
    assert "opwheel_private_seen::f" not in private.kernels_without_schema()
    others = torch.library.Library("opwheel_private_unseen", "IMPL")
    others.impl("g", lambda x: x, "CPU")
    assert "CPU: registered at" in private.kernels_without_schema()["opwheel_private_unseen::g"]
    assert not private.uses_fallback("opwheel_private_seen::f", "CPU")
    assert private.uses_fallback("opwheel_private_seen::f", "AutogradCPU")
    assert private.why_registrations_are_not_seen() == ""


def test_define_operator():
    """Without it nothing says whether PyTorch shows registrations as they are read."""
    kept = private.define_operator("opwheel_private_defined::f(Tensor x) -> Tensor")
    assert private.is_defined("opwheel_private_defined::f")
    del kept
    assert not private.is_defined("opwheel_private_defined::f")


def test_kept_in_dispatcher():
    """Without it a traced program would read freed memory once its operator is defined again."""
    name = "opwheel_private_kept::f"
    library = torch.library.Library("opwheel_private_kept", "FRAGMENT")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x + 1, "CPU")
    op = torch.ops.opwheel_private_kept.f.default
    with private.kept_in_dispatcher(name):
        private.destroy_library(library)
        assert name in private.every_operator()
        library = torch.library.Library("opwheel_private_kept", "FRAGMENT")
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 2, "CPU")
    assert op(torch.zeros(1)).item() == 2.0
    private.destroy_library(library)
    assert name not in private.every_operator()


def test_renew_operator():
    """Without it dispatch modes would see another overload than the one in torch.ops."""
    library = torch.library.Library("opwheel_private_renewed", "FRAGMENT")
    library.define("f(Tensor x) -> Tensor")
    packet = torch.ops.opwheel_private_renewed.f
    op = packet.default
    with private.kept_in_dispatcher("opwheel_private_renewed::f"):
        private.destroy_library(library)
        library = torch.library.Library("opwheel_private_renewed", "FRAGMENT")
        library.define("f(Tensor x, float t) -> Tensor")
    library.impl("f", lambda x, t: x + t, "CPU")
    assert torch.ops.opwheel_private_renewed.f is not packet
    private.renew_operator(op, packet)
    assert (torch.ops.opwheel_private_renewed.f, packet.default) == (packet, op)
    assert len(op._schema.arguments) == 2
    assert [op(torch.zeros(1), 3.0).item(), packet(torch.zeros(1), 4.0).item()] == [3.0, 4.0]


def test_overriding_kernels():
    """Without them kernels for operators that others define cannot be switched on, or leave something behind."""
    definition = private.define_operator("opwheel_overriding::f(Tensor x) -> Tensor")
    first = private.register_kernel("opwheel_overriding::f", "CPU", lambda x: x + 1)
    op, x = torch.ops.opwheel_overriding.f.default, torch.zeros(1)
    over = private.override_kernel("opwheel_overriding::f", "CPU", lambda keys, x: x + 2, "here")
    assert op(x).item() == 2
    assert private.kernels_at("opwheel_overriding::f", "CPU")[0].startswith("here:")
    over.reset()
    assert op(x).item() == 1
    assert len(private.kernels_at("opwheel_overriding::f", "CPU")) == 1
    op._dispatch_cache["CPU"] = None
    private.forget_kernels(op)
    assert not op._dispatch_cache
    first.reset()
    definition.reset()


def test_native_overrides(monkeypatch):
    """Without it a kernel of torch._native is taken for PyTorch's own."""
    node = type("Node", (), {"dsl_name": "triton", "active": True})
    registry = type("Registry", (), {"_graphs": {("add", "CPU"): [node]}})
    monkeypatch.setitem(sys.modules, "torch._native.registry", registry)
    assert private.native_overrides("aten::add", "CPU") == ["triton"]
    assert private.native_overrides("aten::add", "CUDA") == private.native_overrides("other::add", "CPU") == []


def test_active_modes():
    """Without them kernels could be switched in the middle of a trace, and modes of the user's would not see calls."""
    assert private.active_modes() == []
    assert not private.user_mode_is_active()
    with FakeTensorMode():
        assert private.active_modes() == ["FakeTensorMode"]
        assert not private.user_mode_is_active()
    with TorchDispatchMode():
        assert private.user_mode_is_active()
    assert torch.func.vmap(lambda x: x * len(private.active_modes()))(torch.ones(2)).tolist() == [1, 1]


def test_is_plain_or_traced():
    """Without it subclasses with rules of their own would see operators that they do not know."""
    x = torch.ones(2)
    plain = (
        x,
        torch.nn.Parameter(x),
        x.as_subclass(type("Plain", (torch.Tensor,), {})),
        FakeTensorMode().from_tensor(x),
    )
    assert all(private.is_plain_or_traced(one) for one in plain)
    rules = {"__torch_dispatch__": classmethod(lambda cls, func, types, args=(), kwargs=None: None)}
    assert not private.is_plain_or_traced(torch.Tensor._make_subclass(type("Own", (torch.Tensor,), rules), x))
