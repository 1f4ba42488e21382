//go:build tools

// Package calico pins the programs of a Calico between the two that the lab upgrades from and to.
package calico

import (
	_ "github.com/projectcalico/calico/cni-plugin/cmd/calico"
	_ "github.com/projectcalico/calico/cni-plugin/cmd/install"
	_ "github.com/projectcalico/calico/kube-controllers/cmd/check-status"
	_ "github.com/projectcalico/calico/kube-controllers/cmd/kube-controllers"
	_ "github.com/projectcalico/calico/kube-controllers/cmd/wrapper"
	_ "github.com/projectcalico/calico/node/cmd/calico-node"
	_ "github.com/projectcalico/calico/typha/cmd/calico-typha"
)
