"""gshm.torch: modules whose parameters are shared."""
import subprocess
import sys

import pytest
import torch
from conftest import leases, run_python

import gshm
import gshm.torch

TYPES = [
    kind for kind in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "uint16",
        "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
    ) if hasattr(torch, kind)
]  # fmt: skip


class Model(torch.nn.Module):
    """As language models are: an embedding that is also the output, a norm, buffers."""

    def __init__(self, width=8, words=16, kind=torch.float32):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width, dtype=kind)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width, dtype=kind) for _ in range(2)])
        self.norm = torch.nn.LayerNorm(width, dtype=kind)
        self.head = torch.nn.Linear(width, words, bias=False, dtype=kind)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.arange(4))
        self.register_buffer("frequencies", torch.linspace(0, 1, width), persistent=False)

    def forward(self, words):
        x = self.embed(words) + self.frequencies
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(self.norm(x))


WORDS = torch.tensor([1, 5, 7])


def test_a_module_is_attached_without_a_copy(client, place):
    words = WORDS.to(place)
    first = Model().to(place)
    expected = first(words).detach()
    weight = first.embed.weight
    made = gshm.torch.share_module(first, "m", client=client)
    assert made.sealed and torch.equal(first(words), expected)
    assert first.embed.weight is weight is first.head.weight and not weight.requires_grad
    second = gshm.torch.attach_module(Model().to(place), "m", client=client)
    assert torch.equal(second(words), expected) and second.head.weight is second.embed.weight
    third = gshm.torch.attach_module(Model().to("meta"), "m", client=client)
    assert torch.equal(third(words), expected) and third.head.weight is third.embed.weight
    assert isinstance(third.embed.weight, torch.nn.Parameter) and list(third.state_dict()) == list(first.state_dict())
    # Parameters are the same memory, buffers are copies.
    base = min(one.data_ptr() for one in second.parameters())
    assert all(one.data_ptr() % 256 == 0 and 0 <= one.data_ptr() - base < made.size_bytes for one in second.parameters())
    second.steps += 1
    second.frequencies.zero_()
    assert third.steps.tolist() == first.steps.tolist() == [0, 1, 2, 3] and third.frequencies[-1] == 1
    del first, made, weight
    assert leases(client, "m") == 2  # one for each module, whatever the number of tensors
    del second
    assert leases(client, "m") == 1
    del third
    assert leases(client, "m") == 0


def test_another_process_attaches(client, gshmd, place):
    module = Model().to(place)
    gshm.torch.share_module(module, "m", client=client)
    code = """
import sys, torch, gshm, gshm.torch
from test_torch_modules import Model, WORDS
m = gshm.torch.attach_module(Model().to("meta"), "m", client=gshm.connect(sys.argv[1]))
print(m(WORDS.to(sys.argv[2])).sum().item())
"""
    ended = run_python(code, gshmd.dir, place)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) == pytest.approx(module(WORDS.to(place)).sum().item(), rel=1e-4)


def test_the_daemon_may_die(client, gshmd, place):
    words = WORDS.to(place)
    module = Model().to(place)
    expected = module(words).detach()
    gshm.torch.share_module(module, "m", client=client)
    gshmd.kill()
    assert torch.equal(module(words), expected)
    gshmd.start()
    assert torch.equal(gshm.torch.attach_module(Model().to("meta"), "m", client=client)(words), expected)


class Other(Model):
    pass


def test_what_does_not_fit_is_named(client, place):
    gshm.torch.share_module(Model(), "m", client=client)
    untied = Model()
    untied.head.weight = torch.nn.Parameter(torch.zeros(16, 8))
    gshm.torch.share_module(untied, "untied", client=client)

    def differences(module, name="m"):
        before = {key: one.clone() for key, one in module.state_dict().items()}
        with pytest.raises(gshm.torch.Mismatch) as raised:
            gshm.torch.attach_module(module, name, client=client)
        assert all(torch.equal(before[key], one) for key, one in module.state_dict().items()), "it is unchanged"
        assert isinstance(raised.value, ValueError) and raised.value.differences[0] in str(raised.value)
        return raised.value.differences

    assert "embed.weight has the shape [17, 8], not [16, 8]" in differences(Model(words=17))
    assert "norm.bias has the type F64, not F32" in differences(Model(kind=torch.float64))
    assert differences(Other()) == [f"its class is {__name__}:Other, not {__name__}:Model"]
    more = Model()
    more.extra = torch.nn.Parameter(torch.zeros(1))
    assert differences(more) == ["the object has no extra"]
    less = Model()
    del less.norm
    assert differences(less) == ["it has no norm.weight", "it has no norm.bias"]
    buffer = Model()
    del buffer.steps
    buffer.steps = torch.nn.Parameter(torch.arange(4), requires_grad=False)
    assert differences(buffer) == ["steps is a parameter, not a buffer"]
    assert differences(Model(), "untied") == ["head.weight and embed.weight are one tensor, not two"]
    # The other way round the module becomes tied, as the one that was shared.
    assert gshm.torch.attach_module(untied, "m", client=client).head.weight is untied.embed.weight
    with client.create("plain", 4096) as made:
        made.fill(0)
    with pytest.raises((gshm.torch.Mismatch, OSError)):
        gshm.torch.attach_module(Model(), "plain", client=client)
    with pytest.raises(FileNotFoundError):
        gshm.torch.attach_module(Model(), "none", client=client)


def test_tensors_without_bytes_are_refused(client, place):
    with pytest.raises(ValueError, match="steps, frequencies, embed.weight"):
        gshm.torch.share_module(Model().to("meta"), "m", client=client)
    assert client.list() == []
    module = Model()
    gshm.torch.share_module(module, "m", client=client)
    left = Model().to("meta")
    left.layers[0].cache = torch.empty(3, device="meta")  # neither a parameter nor a buffer
    with pytest.raises(ValueError, match="layers.0.cache"):
        gshm.torch.attach_module(left, "m", client=client)
    sparse = torch.nn.Module()
    sparse.a = torch.nn.Parameter(torch.eye(3).to_sparse())
    with pytest.raises((ValueError, RuntimeError)):
        gshm.torch.share_module(sparse, "sparse", client=client)
    with pytest.raises(FileExistsError):
        gshm.torch.share_module(Model(), "m", client=client)
    gshm.torch.share_module(Model(), "m", client=client, replace=True)


def same(one, other):
    """Also for types that torch cannot compare."""
    return one.shape == other.shape and one.cpu().contiguous().view(-1).view(torch.uint8).equal(other.cpu().contiguous().view(-1).view(torch.uint8))


def test_sparse_tensors_are_refused_by_name(client, place):
    def made(sparse):
        module = torch.nn.Module()
        module.first = torch.nn.Linear(2, 2)
        values = torch.eye(4)
        module.first.register_buffer("mask", values.to_sparse() if sparse else values)
        return module.to(place)

    module = made(True)
    with pytest.raises(ValueError, match=r"first\.mask is sparse; make it dense first, with to_dense\(\)"):
        gshm.torch.share_module(module, "m", client=client)
    assert client.list() == [] and module.first.mask.is_sparse and module.first.weight.requires_grad
    dense = made(False)
    gshm.torch.share_module(dense, "m", client=client)
    with pytest.raises(ValueError, match=r"first\.mask is sparse"):
        gshm.torch.attach_module(module, "m", client=client)
    assert module.first.weight.data_ptr() != dense.first.weight.data_ptr()
    rows = torch.nn.Module()
    rows.weight = torch.nn.Parameter(torch.eye(4).to_sparse_csr(), requires_grad=False)
    with pytest.raises(ValueError, match="weight is sparse"):
        gshm.torch.share_module(rows, "rows", client=client)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type(client, place, kind):
    module = torch.nn.Module()
    itemsize = torch.empty(0, dtype=getattr(torch, kind)).element_size()
    value = (torch.arange(6 * itemsize) % 2).to(torch.uint8).view(getattr(torch, kind)).view(2, 3)
    value = value.to(place)
    module.a = torch.nn.Parameter(value, requires_grad=False)
    module.none = torch.nn.Parameter(torch.empty(0, 3, dtype=value.dtype), requires_grad=False)
    module.scalar = torch.nn.Parameter(value[1, 2].clone(), requires_grad=False)
    module.turned = torch.nn.Parameter(value.t(), requires_grad=False)
    gshm.torch.share_module(module, "m", client=client)
    seen = gshm.torch.load_state("m", client=client)
    assert same(seen["a"], value) and seen["a"].dtype == value.dtype and same(seen["turned"], value.t())
    assert seen["none"].shape == (0, 3) and seen["scalar"].shape == () and same(seen["scalar"], value[1, 2])


def test_a_type_without_a_place_in_the_format_is_refused(client, place):
    module = torch.nn.Module()
    module.a = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex128), requires_grad=False)
    with pytest.raises(TypeError, match="complex128"):
        gshm.torch.share_module(module, "m", client=client)


def test_pools_need_a_gpu():
    if torch.cuda.is_available():
        pytest.skip("torch has a GPU")
    with pytest.raises(RuntimeError, match="finds none"):
        gshm.torch.use_pool("p")


def test_gshm_imports_torch_when_it_is_used():
    code = "import sys, gshm; print('torch' in sys.modules); gshm.torch.save; print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.split() == ["False", "True"], ended.stderr


def test_an_object_without_tensors_is_a_mismatch(client, device):
    with client.create("plain", 64, device=device):
        pass
    with pytest.raises(gshm.torch.Mismatch, match="'plain': the object was not made by share_module"):
        gshm.torch.attach_module(Model(), "plain", client=client)


def test_a_type_without_a_place_is_named(client, place):
    with pytest.raises(TypeError, match="weight: tensors of complex128"):
        gshm.torch.share_module(torch.nn.Linear(2, 2, dtype=torch.complex128).to(place), "m", client=client)
    assert client.list() == []
