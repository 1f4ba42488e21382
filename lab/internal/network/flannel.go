package network

import (
	"fmt"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// flannelWithPolicy is flannel and, since flannel enforces no NetworkPolicy, kube-router's policy
// controller next to it.
func flannelWithPolicy(params Params) ([]byte, error) {
	network, err := flannel(params)
	if err != nil {
		return nil, err
	}
	policy, err := firewall(params)
	if err != nil {
		return nil, err
	}
	return append(append(network, "\n---\n"...), policy...), nil
}

// flannel is upstream's manifest with the cluster's pod CIDR, and with the last CNI plugin for
// flannel that can be had as source.
func flannel(params Params) ([]byte, error) {
	if !params.PodCIDR.IsValid() {
		return nil, fmt.Errorf("flannel needs a pod CIDR")
	}
	return upstream(params, "flannel", "github.com/flannel-io/flannel", "Documentation/kube-flannel.yml", []phrase.Edit{
		{From: `"Network": "10.244.0.0/16"`, To: fmt.Sprintf(`"Network": %q`, params.PodCIDR)},
		{From: "flannel-cni-plugin:v1.9.1-flannel1", To: "flannel-cni-plugin:v0.9.1"},
	})
}
