package network

import (
	"fmt"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// calico is upstream's manifest for VXLAN without BGP, as its documentation tells a user to edit it:
// the pool's CIDR, and encapsulation everywhere. One line is the lab's own: its Felix is built without
// cgo, cannot load the BPF library, and must not try to detach old BPF programs with it.
func calico(params Params) ([]byte, error) {
	if !params.PodCIDR.IsValid() {
		return nil, fmt.Errorf("calico needs a pod CIDR")
	}
	const indent = "\n            "
	return upstream(params, "calico", "github.com/projectcalico/calico", "manifests/calico-vxlan.yaml", []phrase.Edit{
		{
			From: `# - name: CALICO_IPV4POOL_CIDR` + indent + `#   value: "192.168.0.0/16"`,
			To:   `- name: CALICO_IPV4POOL_CIDR` + indent + fmt.Sprintf(`  value: %q`, params.PodCIDR),
		},
		{
			From: `- name: CALICO_IPV4POOL_VXLAN` + indent + `  value: "CrossSubnet"`,
			To:   `- name: CALICO_IPV4POOL_VXLAN` + indent + `  value: "Always"`,
		},
		{
			From: `- name: FELIX_HEALTHENABLED`,
			To:   `- name: FELIX_DebugSkipCTLBCleanup` + indent + `  value: "true"` + indent + `- name: FELIX_HEALTHENABLED`,
		},
	})
}
