// Package drivers lists the drivers of the networks that Theseus supports.
package drivers

import (
	"github.com/theseus-cni/theseus/internal/network/bridge"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/canal"
	"github.com/theseus-cni/theseus/internal/network/cilium"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/network/kindnet"
	"github.com/theseus-cni/theseus/internal/network/kuberouter"
	"github.com/theseus-cni/theseus/internal/network/weave"
)

// All returns a driver for each network.
func All() cni.Registry {
	return cni.Registry{flannel.Driver{}, calico.Driver{}, weave.Driver{}, cilium.Driver{}, kindnet.Driver{},
		kuberouter.Driver{}, canal.Driver{}, bridge.Driver{}}
}
