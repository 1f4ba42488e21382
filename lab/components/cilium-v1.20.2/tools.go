//go:build tools

// Package cilium pins the Cilium programs that the lab builds.
package cilium

import (
	_ "github.com/cilium/cilium/cilium-dbg"
	_ "github.com/cilium/cilium/daemon"
	_ "github.com/cilium/cilium/operator"
	_ "github.com/cilium/cilium/plugins/cilium-cni"
	_ "github.com/cilium/cilium/tools/mount"
	_ "github.com/cilium/cilium/tools/sysctlfix"
)
