//go:build tools

// Package containerd pins containerd 2, with which current versions of Kubernetes are run; Debian's is 1.6.
package containerd

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
