"""The layers of a small convolutional network in numpy: forward and backward.

`forward` remembers what `backward` needs; `backward` takes the gradient of the loss by the layer's
output, stores the gradients of its own `parameters` and returns the gradient by its input. Images
are [batch, channels, height, width], as in ONNX.
"""

import numpy as np

Array = np.ndarray


class Layer:
    """A function of an array; `parameters` are trained, and `gradients` has the same keys."""

    def __init__(self) -> None:
        self.parameters: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}

    def forward(self, x: Array, *, training: bool) -> Array:
        """The layer's output."""
        raise NotImplementedError

    def backward(self, grad: Array) -> Array:
        """The loss's gradient by the input, given that by the output of the last `forward`."""
        raise NotImplementedError


class Convolution(Layer):
    """A 3x3 convolution, padded to keep the size, without bias: a normalization follows it."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        super().__init__()
        std = (2.0 / (inputs * 9)) ** 0.5
        weight = random.standard_normal((outputs, inputs, 3, 3), np.float32) * np.float32(std)
        self.parameters = {"weight": weight}

    def forward(self, x: Array, *, training: bool) -> Array:
        """Every 3x3 window times the weights, one matrix product."""
        self._windows = _windows(x)
        product = np.tensordot(self._windows, self.parameters["weight"], ((1, 4, 5), (1, 2, 3)))
        return product.transpose(0, 3, 1, 2)

    def backward(self, grad: Array) -> Array:
        """The input's gradient is the convolution of `grad` with the weights turned round."""
        by_weight = np.tensordot(grad, self._windows, ((0, 2, 3), (0, 2, 3)))
        self.gradients = {"weight": by_weight}
        turned = self.parameters["weight"][:, :, ::-1, ::-1]
        return np.tensordot(_windows(grad), turned, ((1, 4, 5), (0, 2, 3))).transpose(0, 3, 1, 2)


class Depthwise(Layer):
    """A 3x3 convolution of each channel by itself, padded to keep the size, without bias."""

    def __init__(self, channels: int, random: np.random.Generator) -> None:
        super().__init__()
        weight = random.standard_normal((channels, 1, 3, 3), np.float32)
        self.parameters = {"weight": weight * np.float32((2.0 / 9) ** 0.5)}

    def forward(self, x: Array, *, training: bool) -> Array:
        """Every window of a channel times the channel's weights."""
        self._windows = _windows(x)
        return np.einsum("bchwij,cij->bchw", self._windows, self.parameters["weight"][:, 0])

    def backward(self, grad: Array) -> Array:
        """As for a convolution, channel by channel."""
        by_weight = np.einsum("bchw,bchwij->cij", grad, self._windows)
        self.gradients = {"weight": by_weight[:, None]}
        turned = self.parameters["weight"][:, 0, ::-1, ::-1]
        return np.einsum("bchwij,cij->bchw", _windows(grad), turned)


class Pointwise(Layer):
    """A 1x1 convolution, without bias: the channels of each pixel times a matrix."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        super().__init__()
        weight = random.standard_normal((outputs, inputs, 1, 1), np.float32)
        self.parameters = {"weight": weight * np.float32((2.0 / inputs) ** 0.5)}

    def forward(self, x: Array, *, training: bool) -> Array:
        """A product of matrices for each image."""
        self._x = x
        return np.einsum("bihw,oi->bohw", x, self.parameters["weight"][:, :, 0, 0], optimize=True)

    def backward(self, grad: Array) -> Array:
        """Two products."""
        by_weight = np.einsum("bohw,bihw->oi", grad, self._x, optimize=True)
        self.gradients = {"weight": by_weight[:, :, None, None]}
        weight = self.parameters["weight"][:, :, 0, 0]
        return np.einsum("bohw,oi->bihw", grad, weight, optimize=True)


class Normalization(Layer):
    """Batch normalization: by the batch's statistics in training, by their running mean after."""

    epsilon = 1e-5
    momentum = 0.9

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.parameters = {
            "scale": np.ones(channels, np.float32),
            "bias": np.zeros(channels, np.float32),
        }
        self.running_mean = np.zeros(channels, np.float32)
        self.running_var = np.ones(channels, np.float32)

    def forward(self, x: Array, *, training: bool) -> Array:
        """scale * (x - mean) / sqrt(variance + epsilon) + bias, per channel."""
        mean, var = self.running_mean, self.running_var
        if training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            keep = self.momentum
            self.running_mean = keep * self.running_mean + (1 - keep) * mean
            self.running_var = keep * self.running_var + (1 - keep) * var
        self._inverse = _per_channel(1.0 / np.sqrt(var + self.epsilon))
        self._normal = (x - _per_channel(mean)) * self._inverse
        scale, bias = self.parameters["scale"], self.parameters["bias"]
        return self._normal * _per_channel(scale) + _per_channel(bias)

    def backward(self, grad: Array) -> Array:
        """The mean and the variance depend on every element, hence the two means."""
        normal = self._normal
        self.gradients = {"scale": (grad * normal).sum((0, 2, 3)), "bias": grad.sum((0, 2, 3))}
        grad = grad * _per_channel(self.parameters["scale"])
        mean = grad.mean((0, 2, 3), keepdims=True)
        slope = (grad * normal).mean((0, 2, 3), keepdims=True)
        return (grad - mean - normal * slope) * self._inverse


class Relu(Layer):
    """max(x, 0)."""

    def forward(self, x: Array, *, training: bool) -> Array:
        """x where positive, else 0."""
        self._positive = x > 0
        return x * self._positive

    def backward(self, grad: Array) -> Array:
        """The gradient where x was positive."""
        return grad * self._positive


class MaxPool(Layer):
    """The largest of each 2x2 window; height and width are halved."""

    def forward(self, x: Array, *, training: bool) -> Array:
        """[batch, channels, 2 h, 2 w] -> [batch, channels, h, w]."""
        batch, channels, height, width = x.shape
        windows = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
        largest = windows.max((3, 5), keepdims=True)
        self._chosen = windows == largest
        return largest.reshape(batch, channels, height // 2, width // 2)

    def backward(self, grad: Array) -> Array:
        """The gradient goes to the largest; where several are equal they share it."""
        shares = self._chosen / self._chosen.sum((3, 5), keepdims=True, dtype=np.float32)
        spread = shares * grad[:, :, :, None, :, None]
        batch, channels, height, _, width, _ = spread.shape
        return spread.reshape(batch, channels, 2 * height, 2 * width)


class GlobalAverage(Layer):
    """The mean of each channel: [batch, channels, height, width] -> [batch, channels, 1, 1]."""

    def forward(self, x: Array, *, training: bool) -> Array:
        """The mean of each picture."""
        self._shape = x.shape
        return x.mean((2, 3), keepdims=True)

    def backward(self, grad: Array) -> Array:
        """Every pixel has the same share."""
        _, _, height, width = self._shape
        return np.broadcast_to(grad / np.float32(height * width), self._shape)


class Residual(Layer):
    """x plus what a body of layers makes of it, of the same shape."""

    def __init__(self, *body: Layer) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Array, *, training: bool) -> Array:
        """The body, one layer after another, and x."""
        y = x
        for layer in self.body:
            y = layer.forward(y, training=training)
        return x + y

    def backward(self, grad: Array) -> Array:
        """The gradient goes both ways."""
        through = grad
        for layer in reversed(self.body):
            through = layer.backward(through)
        return grad + through


class Linear(Layer):
    """Flatten and multiply: [batch, ..] -> [batch, outputs]; weights are [outputs, inputs]."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        super().__init__()
        std = np.float32(inputs**-0.5)
        weight = random.standard_normal((outputs, inputs), np.float32) * std
        self.parameters = {"weight": weight, "bias": np.zeros(outputs, np.float32)}

    def forward(self, x: Array, *, training: bool) -> Array:
        """x @ weight.T + bias."""
        self._shape, self._flat = x.shape, x.reshape(len(x), -1)
        return self._flat @ self.parameters["weight"].T + self.parameters["bias"]

    def backward(self, grad: Array) -> Array:
        """Two matrix products and a sum."""
        self.gradients = {"weight": grad.T @ self._flat, "bias": grad.sum(0)}
        return (grad @ self.parameters["weight"]).reshape(self._shape)


def _windows(x: Array) -> Array:
    """The 3x3 windows around all pixels: [batch, channels, height, width, 3, 3]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))


def _per_channel(vector: Array) -> Array:
    return vector.astype(np.float32, copy=False)[:, None, None]
