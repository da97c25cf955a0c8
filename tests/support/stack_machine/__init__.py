"""A kind of device, complete in small: docs/new-device-kind.md walks through it."""
