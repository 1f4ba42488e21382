package network

import (
	"fmt"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// calico is upstream's manifest for VXLAN without BGP, as its documentation tells a user to edit it:
// the pool's CIDR, and encapsulation everywhere.
func calico(params Params) ([]byte, error) {
	if !params.PodCIDR.IsValid() {
		return nil, fmt.Errorf("calico needs a pod CIDR")
	}
	return calicoUpstream(params, "calico-vxlan.yaml", []phrase.Edit{
		{
			From: `# - name: CALICO_IPV4POOL_CIDR` + indent + `#   value: "192.168.0.0/16"`,
			To:   `- name: CALICO_IPV4POOL_CIDR` + indent + fmt.Sprintf(`  value: %q`, params.PodCIDR),
		},
		{
			From: `- name: CALICO_IPV4POOL_VXLAN` + indent + `  value: "CrossSubnet"`,
			To:   `- name: CALICO_IPV4POOL_VXLAN` + indent + `  value: "Always"`,
		},
		withoutBPF,
	})
}

// calicoAfterFlannel is upstream's manifest for a cluster whose nodes Calico's flannel migration controller
// takes over one by one. The pool is the controller's to make.
func calicoAfterFlannel(params Params) ([]byte, error) {
	return calicoUpstream(params, "flannel-migration/calico.yaml", []phrase.Edit{withoutBPF})
}

// indent is that of a container's environment in Calico's manifests.
const indent = "\n            "

// withoutBPF is the lab's own line: its Felix is built without cgo, cannot load the BPF library, and must not
// try to detach old BPF programs with it.
var withoutBPF = phrase.Edit{
	From: `- name: FELIX_HEALTHENABLED`,
	To:   `- name: FELIX_DebugSkipCTLBCleanup` + indent + `  value: "true"` + indent + `- name: FELIX_HEALTHENABLED`,
}

func calicoUpstream(params Params, file string, edits []phrase.Edit) ([]byte, error) {
	return upstream(params, "calico", "github.com/projectcalico/calico", "manifests/"+file, edits)
}
