"""Networks over images, float32[rows, channels, height, width], as textbooks have them and small."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Basic(nn.Module):
    """Two 3 x 3 convolutions beside an identity (He et al. 2016, figure 2)."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut(before, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside an identity (He et al. 2016, figure 5)."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)),
        )
        self.shortcut = shortcut(before, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.layers(x) + self.shortcut(x), inplace=True)


def shortcut(before: int, after: int, stride: int) -> nn.Module:
    if stride == 1 and before == after:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


def resnet(block: type[Basic] | type[Bottleneck], depths: Sequence[int], width: int, classes: int) -> nn.Module:
    """ResNet-18 is Basic with depths 2, 2, 2, 2; ResNet-50 is Bottleneck with 3, 4, 6, 3; both of width 64."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = width
    for stage, depth in enumerate(depths):
        for number in range(depth):
            layers.append(block(before, width * 2**stage, 2 if stage and not number else 1))
            before = width * 2**stage * block.expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def convnet(classes: int) -> nn.Module:
    """Convolutions with GroupNorm, grouped and dilated, strided instead of pooled, with feature dropout."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(4, 8), nn.SiLU(), nn.Dropout2d(0.2)),
        *(nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=4), nn.GroupNorm(2, 8), nn.Mish(), nn.AvgPool2d(2)),
        *(nn.Conv2d(8, 16, 1), nn.InstanceNorm2d(16, affine=True), nn.Hardswish(), nn.AdaptiveMaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, classes)),
    )


class ViT(nn.Module):
    """A vision transformer (Dosovitskiy et al. 2021) of torch's own encoder layers."""

    def __init__(self, size: int, patch: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1) + self.places
        return self.head(self.encoder(tokens)[:, 0])


class UNet(nn.Module):
    """A U-Net (Ronneberger et al. 2015): down by pooling, up by a transposed convolution or by interpolation."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.down1, self.down2 = double(3, width), double(width, 2 * width)
        self.bottom = double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join2, self.join1 = double(4 * width, 2 * width), double(3 * width, width)
        self.smooth = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        joined = self.join2(torch.cat([second, self.up2(bottom)], 1))
        return self.head(self.join1(torch.cat([first, self.smooth(joined)], 1)))


def double(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)),
        *(nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)),
    )
