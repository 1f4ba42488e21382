package network

import (
	"fmt"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// Canal is Calico's policy on flannel's tunnels: both agents in one DaemonSet.
const Canal = "canal"

// canal is upstream's manifest with the cluster's pod CIDR, and with the flannel that the lab builds.
func canal(params Params) ([]byte, error) {
	if !params.PodCIDR.IsValid() {
		return nil, fmt.Errorf("canal needs a pod CIDR")
	}
	return calicoUpstream(params, "canal.yaml", []phrase.Edit{
		{From: `"Network": "10.244.0.0/16"`, To: fmt.Sprintf(`"Network": %q`, params.PodCIDR)},
		{From: "docker.io/flannel/flannel:v0.24.4", To: "ghcr.io/flannel-io/flannel:v0.28.4"},
		withoutBPF,
	})
}
